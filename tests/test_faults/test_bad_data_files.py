"""Data files of a stranger: each flaw is named, with its place and its fix."""

import json
import os
import struct
import time
import zipfile
from pathlib import Path

import pytest
from cifar_trees import CIFAR10_NAMES
from coco_document import coco_document
from image_files import png_that_claims, write_files
from retrieval_trees import write_images

from mmrank.annotations.check import inspect_coco, read_checked
from mmrank.datasets.interactions.splitting import split_file
from mmrank.errors import UserError
from mmrank.files import whole_folder


def document(number=2):
    """``number`` images of 40 x 30 with a box each."""
    boxes = [(i, 1, [1, 2, 10, 8]) for i in range(number)]
    return coco_document(boxes, number, classes=['cat'], first=0)


@pytest.fixture
def folder(tmp_path):
    """Image folder of :func:`document`."""
    path = tmp_path / 'images'
    write_images(path, ('0.png', '1.png'), (30, 40, 3))
    return path


def refusal(path, *args, **options):
    with pytest.raises(UserError, match='Fix: ') as caught:
        read_checked(path, *args, **options)
    return str(caught.value)


def test_many_categories_take_no_square_of_time():
    big = document()
    big['categories'] += [{'id': i, 'name': f'class {i}'} for i in range(2, 20_000)]
    names = [x['name'] for x in big['categories']]
    start = time.process_time()
    assert inspect_coco(big, 'a.json', classes=names).ok
    assert time.process_time() - start < 1.0


def test_links_that_lead_nowhere(tmp_path, folder):
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(document()))
    (folder / 'unrelated').symlink_to(folder / 'unrelated')
    assert read_checked(path, folder, verify_images=True)[1].ok
    (folder / '1.png').unlink()
    (folder / '1.png').symlink_to(folder / '1.png')
    found = refusal(path, folder, verify_images=True)
    assert 'image id 1: ' in found
    assert '1.png cannot be opened: ' in found
    (folder / '1.png').unlink()
    os.mkfifo(folder / '1.png')
    assert '1.png is not a file' in refusal(path, folder, verify_images=True)


def test_decompression_bombs(tmp_path, folder):
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(document()))
    (folder / '1.png').write_bytes(png_that_claims(60_000, 60_000))
    found = refusal(path, folder, verify_images=True)
    assert 'image id 1: ' in found
    assert 'MAX_IMAGE_PIXELS' in found


def test_a_split_finds_quoted_blank_and_named_columns(tmp_path):
    path = tmp_path / 'a.csv'
    lines = ['item,user,rating', '"x,1",a,5', ' y , a,5', 'z,a,5', '"x,1",b,5']
    lines += ['y,b,4', 'z,b,1', 'z,b,5']
    path.write_text('\n'.join(lines) + '\n')
    paths = split_file(path, tmp_path / 'out', 0.4, min_rating=2)
    texts = [p.read_text().splitlines() for p in paths]
    assert [text[0] for text in texts] == [lines[0]] * 2
    kept = sorted(texts[0][1:] + texts[1][1:])
    assert kept == sorted([*lines[1:2], 'y,a,5', *lines[3:6], lines[7]])
    assert len(texts[1]) > 1
    with pytest.raises(ValueError, match='share must be in'):
        split_file(path, tmp_path / 'other', 1)
    assert not (tmp_path / 'other').exists()


def test_class_folders_with_loops_bombs_and_long_numbers(tmp_path):
    mine = pytest.importorskip('mmrank.datasets.retrieval.retrieval_sets')
    from mmrank.datasets.checks.retrieval_check import inspect_config

    write_images(tmp_path, ('cat/0.png', 'cat/1.png', 'dog/0.png', 'dog/1.png'))
    (tmp_path / 'loop').symlink_to(tmp_path / 'loop')
    (tmp_path / 'cat/self.png').symlink_to(tmp_path / 'cat/self.png')
    (tmp_path / 'dog/up').symlink_to(tmp_path)
    (tmp_path / 'dog/bomb.png').write_bytes(png_that_claims(60_000, 60_000))
    dataset = dict(type='mmrank.ClassFolder', data_root=str(tmp_path))
    (report,) = inspect_config(dict(train_dataloader=dict(dataset=dataset)), read_images=True)
    found = {problem.kind: problem.examples for problem in report.problems}
    assert found['image file missing'] == [f'{tmp_path}/cat/self.png']
    (bomb,) = found['image that cannot be decoded']
    assert 'bomb.png: ' in bomb
    names = ['1' * 5000, '01', '2']
    lines = ''.join(f'{i}.jpg {name}\n' for i, name in enumerate(names))
    (tmp_path / 'list.txt').write_text(lines)
    data = mine.ClassFolder(str(tmp_path), ann_file='list.txt')
    assert data.metainfo['classes'] == ('01', '2', '1' * 5000)


def test_arrays_that_would_fill_the_memory(tmp_path):
    cifar = pytest.importorskip('mmrank.datasets.long_tail.cifar_images')
    names = cifar.HOSTS[10].METAINFO['classes']
    path = tmp_path / 'train.npz'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('images.npy', b'')
    data = bytearray(path.read_bytes())
    place = data.rindex(b'PK\x01\x02')
    data[place + 24 : place + 28] = struct.pack('<I', 2 * 10**9)
    path.write_bytes(data)
    with pytest.raises(UserError, match=r'train\.npz .* more than 1,'):
        cifar._read_arrays(path, names)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=r'train\.npz cannot be read'):
        cifar._read_arrays(path, names)


CONVERTERS = Path(__file__).resolve().parents[2] / 'tools/dataset_converters'


def content(folder):
    """Files of a folder, hidden ones included."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob('*') if p.is_file())


def test_a_folder_keeps_its_other_files(tmp_path):
    out = tmp_path / 'out'
    for files in (['a/1', 'b'], ['a/2', 'b', 'c/3']):
        with whole_folder(out) as folder:
            for name in files:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(files[0])
    assert content(tmp_path) == ['out/a/1', 'out/a/2', 'out/b', 'out/c/3']
    assert (out / 'b').read_text() == 'a/2'

    def fail():
        with whole_folder(out) as folder:
            (folder / 'd').write_text('')
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert content(tmp_path) == ['out/a/1', 'out/a/2', 'out/b', 'out/c/3']


@pytest.mark.parametrize(
    ('tool', 'options'),
    [
        ('omniglot.py', ()),
        ('cifar10.py', ()),
        ('make_captions.py', ('--per-class', '1', '--val-per-class', '1')),
    ],
)
def test_an_image_that_claims_to_be_huge_is_refused(tmp_path, run_script, tool, options):
    pytest.importorskip('mmpretrain')
    source = tmp_path / 'source'
    names = [f'{x}/{y}/{i}.png' for x in ('train', 'test') for y in CIFAR10_NAMES for i in '01']
    write_files(source, [(name, png_that_claims(60_000, 60_000)) for name in names])
    start = time.process_time()
    status, _, errors = run_script(CONVERTERS / tool, *options, source, tmp_path / 'out')
    assert status == 2
    assert 'exceeds limit' in errors
    assert {x.name for x in tmp_path.iterdir()} == {'source'}
    assert time.process_time() - start < 20
