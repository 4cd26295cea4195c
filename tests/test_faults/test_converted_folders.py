"""Folders that converters write: whole, or not at all."""

import time
from pathlib import Path

import pytest
from cifar_trees import CIFAR10_NAMES
from image_files import png_that_claims, write_files

from mmrank.files import whole_folder

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
