"""Whatever a file holds, a reader reads it or says in one message why not."""

import json
import resource
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from cifar_trees import CIFAR10_NAMES
from coco_document import make_document
from hostile_files import ROWS
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
