"""Files of a stranger: each is read, or one message says what is wrong, where, and the fix."""

import gc
import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from cifar_trees import CIFAR10_NAMES
from coco_document import coco_document, make_document
from hostile_files import GOOD, ROWS
from image_files import png_that_claims, write_files
from malformed_files import malformed
from retrieval_trees import write_images

from mmrank.annotations.check import inspect_coco, read_checked
from mmrank.annotations.clean import clean_coco
from mmrank.annotations.images import read_image
from mmrank.annotations.read import read_coco_json
from mmrank.datasets.captions.caption_files import (
    read_caption_table,
    read_coco_captions,
    read_karpathy,
)
from mmrank.datasets.interactions.pair_files import read_csv, read_xmc, split_file
from mmrank.datasets.retrieval.image_lists import (
    INATURALIST_LIST,
    PATH_LIST,
    SOP_LIST,
    VEHICLE_ID_LIST,
)
from mmrank.errors import UserError
from mmrank.files import whole_folder

#: Of processor time; a good file takes a few milliseconds.
SECONDS = 5.0
#: Beside what the process has.
BYTES = 1 << 30


def check_coco(path):
    images = path.parent / 'images'
    try:
        read_checked(path, images, verify_images=True)
    finally:
        with suppress(UserError):
            document = read_coco_json(path)
            assert not inspect_coco(clean_coco(document)[0], path.name).bad_annotations


def long_tail(module, call):
    """A reader of a module that needs mmpretrain."""

    def read(path, **settings):
        home = pytest.importorskip(f'mmrank.datasets.long_tail.{module}')
        return call(home, path, **settings)

    return read


def read_labels(home, path, **settings):
    home.MultiLabelCSV(path.name, data_root=str(path.parent), data_prefix='images', **settings)


def read_names(home, path):
    home._read_image_list(path, dict.fromkeys(GOOD['names.txt'].decode().split()))


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
    'sop.txt': lambda path: SOP_LIST.read(path).raise_if_bad(),
    'vehicle.txt': lambda path: VEHICLE_ID_LIST.read(path).raise_if_bad(),
    'inaturalist.txt': lambda path: INATURALIST_LIST.read(path).raise_if_bad(),
    'paths.txt': lambda path: PATH_LIST.read(path).raise_if_bad(),
    'labels.csv': long_tail('multi_label', read_labels),
    'entries.csv': long_tail('multi_label', lambda home, path: home._read_entries(path)),
    'names.txt': long_tail('multi_label', read_names),
    'train.npz': long_tail('cifar', lambda home, x: home._read_arrays(x, CIFAR10_NAMES)),
    **{name: read_image for name in GOOD if name.startswith('image.')},
}
#: The readers of the rows: also where a file has no ratings, and is packed.
OF_ROWS = {**READERS, 'plain.csv': read_csv, 'xmc.txt.gz': read_xmc}


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
    """Give damaged files to a reader; count those that it refuses."""
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
    write_images(tmp_path / 'images', [f'{i}.png' for i in range(4)], (30, 40, 3))
    if 'image' in settings:
        (tmp_path / 'images/1.png').unlink()
        settings.pop('image')(tmp_path / 'images/1.png')
    if callable(content):
        document = make_document() if name == 'coco.json' else json.loads(GOOD[name])
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


def test_many_categories_take_no_square_of_time():
    names = [f'class {i}' for i in range(20_000)]
    start = time.process_time()
    assert inspect_coco(coco_document([(1, 1, [1, 2, 10, 8])], classes=names), '', classes=names).ok
    assert time.process_time() - start < 1.0


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


def test_a_check_imports_no_torch():
    code = "import mmrank.annotations.check, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, '-c', code], check=True, cwd=CONVERTERS.parents[1])


def seconds_of(call, *args):
    """Processor time; what was made is gone afterwards."""
    start = time.process_time()
    call(*args)
    seconds = time.process_time() - start
    gc.collect()
    return seconds


@pytest.mark.slow
def test_a_check_takes_at_most_twice_the_time_of_reading(tmp_path):
    """Of 100,000 images with 8 boxes each; both in this process, turn by turn."""
    rng = np.random.default_rng(0)
    box = np.round(rng.uniform([0, 0, 5, 5], 300, (800_000, 4)), 2)
    boxes = [(i % 100_000, 1 + i % 80, own) for i, own in enumerate(box.tolist())]
    document = coco_document(boxes, 100_000, (640, 480), map(str, range(80)), first=0)
    path = tmp_path / 'large.json'
    path.write_text(json.dumps(document))
    load, check = zip(
        *(
            (seconds_of(lambda: json.loads(path.read_text())), seconds_of(read_checked, path))
            for _ in range(3)
        )
    )
    print(f'json.load {min(load):.2f} s, check {min(check):.2f} s')
    assert min(check) <= 2 * min(load)
