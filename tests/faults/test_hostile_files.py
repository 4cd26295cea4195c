"""Files of a stranger: each is read, or one message says what is wrong, where, and the fix."""

import gc
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cifar_trees import CIFAR10_NAMES
from coco_document import coco_document, make_document
from hostile_files import ROWS
from image_files import png_that_claims, write_files
from malformed_files import good_files, malformed
from retrieval_trees import write_images

from mmrank.annotations.check import inspect_coco, read_checked
from mmrank.annotations.clean import clean_coco
from mmrank.annotations.image_header import read_image
from mmrank.annotations.read import read_coco_json
from mmrank.datasets.captions.caption_files import (
    read_caption_table,
    read_coco_captions,
    read_karpathy,
)
from mmrank.datasets.interactions.read_csv import read_csv
from mmrank.datasets.interactions.read_xmc import read_xmc
from mmrank.datasets.interactions.splitting import split_file
from mmrank.datasets.retrieval.image_lists import (
    INATURALIST_LIST,
    PATH_LIST,
    SOP_LIST,
    VEHICLE_ID_LIST,
)
from mmrank.errors import UserError
from mmrank.files import whole_folder

GOOD = good_files()
#: Of processor time; a good file takes a few milliseconds.
SECONDS = 5.0
#: Beside what the process has.
BYTES = 1 << 30


def check_coco(path):
    images = path.parent / 'images'
    try:
        read_checked(path, images, verify_images=True)
    finally:
        try:
            document = read_coco_json(path)
            report = inspect_coco(clean_coco(document)[0], path.name)
            assert not report.bad_annotations
        except UserError:
            pass


def check_list(read):
    return lambda path: read(path).raise_if_bad()


def read_arrays(path):
    from mmrank.datasets.long_tail import cifar_images

    cifar_images._read_arrays(path, CIFAR10_NAMES)


def read_labels(path, **settings):
    from mmrank.datasets.long_tail.multi_label_csv import MultiLabelCSV

    MultiLabelCSV(path.name, data_root=str(path.parent), data_prefix='images', **settings)


def chest_xray14():
    from mmrank.datasets.long_tail import chest_xray14

    return chest_xray14


READERS = {
    'coco.json': check_coco,
    'coco_captions.json': read_coco_captions,
    'karpathy.json': lambda path: read_karpathy(path, ['train']),
    'captions.json': read_caption_table,
    'captions.jsonl': read_caption_table,
    'captions.tsv': read_caption_table,
    'pairs.csv': lambda path, min_rating=2: read_csv(path, min_rating),
    'pairs.csv.gz': read_csv,
    'split.csv': lambda path: split_file(path, path.parent / 'out'),
    'ratings.dat': lambda path: read_csv(path, 4, '::'),
    'xmc.txt': read_xmc,
    'sop.txt': check_list(SOP_LIST.read),
    'vehicle.txt': check_list(VEHICLE_ID_LIST.read),
    'inaturalist.txt': check_list(INATURALIST_LIST.read),
    'paths.txt': check_list(PATH_LIST.read),
    'labels.csv': read_labels,
    'entries.csv': lambda path: chest_xray14()._read_entries(path),
    'names.txt': lambda path: chest_xray14()._read_image_list(
        path, dict.fromkeys(GOOD['names.txt'].decode().split())
    ),
    'train.npz': read_arrays,
    **{name: read_image for name in GOOD if name.startswith('image.')},
}
#: The readers of the rows: also where a file has no ratings, and is packed.
OF_ROWS = {**READERS, 'plain.csv': read_csv, 'xmc.txt.gz': read_xmc}
HOST = {'train.npz', 'labels.csv', 'entries.csv', 'names.txt'}


class Hang(BaseException):
    """Time is up; no ``except Exception`` of a reader takes it for its own."""


@contextmanager
def limited():
    """Ends a block that takes too long or too much memory."""

    def stop(*_):
        raise Hang(f'took more than {SECONDS} s')

    pages = int(Path('/proc/self/statm').read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = pages * resource.getpagesize() + BYTES
    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def complaint(name, error):
    """What is wrong with an error; None for one that a user understands."""
    kind, text = type(error), str(error)
    # Not a subclass, as of json or of codecs: those name no file.
    if kind not in (UserError, ValueError):
        return f'{kind.__name__}: {text[:300]}'
    if name not in text:
        return f'the message does not name the file: {text[:300]}'
    if any('\ud800' <= x <= '\udfff' for x in text):
        return f'the message cannot be printed: {text[:300]!a}'
    return f'{len(text):,} characters' if len(text) > 10_000 else None


def attack(name, seeds, folder):
    """Give damaged files to a reader.

    Returns:
        How many it refused.
    """
    if name in HOST:
        pytest.importorskip('mmpretrain')
    images = folder / 'images'
    images.mkdir()
    for i in range(6):
        (images / f'{i}.png').write_bytes(GOOD['image.png'])
    for image in ('a.jpg', 'b.jpg'):
        (images / image).write_bytes(GOOD['image.jpg'])
    path = folder / name
    path.write_bytes(GOOD[name])
    READERS[name](path)
    refused = 0
    for seed in seeds:
        shutil.rmtree(folder / 'out', ignore_errors=True)
        path.write_bytes(malformed(name, GOOD[name], seed))
        try:
            with limited():
                READERS[name](path)
        except (Exception, Hang) as error:
            if text := complaint(name, error):
                raise AssertionError(f'seed {seed}: {text}') from error
            refused += 1
    return refused


@pytest.mark.parametrize('row', ROWS, ids=[f'{x[0]}-{i}' for i, x in enumerate(ROWS)])
def test_a_flaw_is_named_with_its_place_and_its_fix(tmp_path, row):
    name, content, *words = row
    settings = words.pop() if isinstance(words[-1], dict) else {}
    if name in HOST:
        pytest.importorskip('mmpretrain')
    write_images(tmp_path / 'images', [f'{i}.png' for i in range(4)], (30, 40, 3))
    if callable(content):
        document = make_document()
        content(document)
        content = document
    if isinstance(content, dict | list):
        content = json.dumps(content)
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match='Fix: ') as caught:
        OF_ROWS[name](path, **settings)
    assert complaint(name, caught.value) is None
    assert len(str(caught.value).replace(str(tmp_path), '')) < 600
    for word in words:
        assert word in str(caught.value)


#: Seeds in the default run, and in the slow one.
SEEDS = [range(8), range(100, 100 + -(-5000 // len(READERS)))]


@pytest.mark.parametrize('name', READERS)
@pytest.mark.parametrize(
    'seeds', [SEEDS[0], pytest.param(SEEDS[1], marks=pytest.mark.slow)], ids=['few', 'many']
)
def test_damaged_files_are_read_or_refused(tmp_path, name, seeds):
    assert attack(name, seeds, tmp_path) > max(1, len(seeds) / 10)


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


ROOT = Path(__file__).resolve().parents[2]
NUM_IMAGES, NUM_BOXES = 100_000, 800_000


def test_a_check_imports_no_torch():
    code = "import mmrank.annotations.check, sys; assert 'torch' not in sys.modules"
    subprocess.run(
        [sys.executable, '-c', code], check=True, env={**os.environ, 'PYTHONPATH': str(ROOT)}
    )


@pytest.fixture(scope='module')
def large_file(tmp_path_factory):
    """100,000 images with 8 boxes each."""
    rng = np.random.default_rng(0)
    box = np.round(rng.uniform([0, 0, 5, 5], 300, (NUM_BOXES, 4)), 2)
    boxes = [(i % NUM_IMAGES, 1 + i % 80, own) for i, own in enumerate(box.tolist())]
    document = coco_document(boxes, NUM_IMAGES, (640, 480), map(str, range(80)), first=0)
    path = tmp_path_factory.mktemp('large') / 'large.json'
    path.write_text(json.dumps(document))
    return path


@pytest.mark.slow
def test_a_check_takes_at_most_twice_the_time_of_reading(large_file):
    """Both in this process, turn by turn, by processor time."""
    seconds = {'load': [], 'check': []}
    for _ in range(3):
        start = time.process_time()
        with large_file.open() as file:
            document = json.load(file)
        seconds['load'].append(time.process_time() - start)
        del document
        gc.collect()
        start = time.process_time()
        assert read_checked(large_file)[1].ok
        seconds['check'].append(time.process_time() - start)
        gc.collect()
    load, check = (min(x) for x in seconds.values())
    print(f'json.load {load:.2f} s, check {check:.2f} s: {check / load:.2f}')
    assert check <= 2 * load
