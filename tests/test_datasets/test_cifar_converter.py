"""The converter of CIFAR on sets made here, and the real images."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from cifar_trees import coded_image, every_image, write_folders

pytest.importorskip('mmpretrain')

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / 'tools/dataset_converters/cifar10.py'
REAL = ROOT.parent / 'shared/data/cifar10/cifar10_jpg.zip'


@pytest.fixture
def convert(run_script):
    """Runs the tool: status and error output."""
    return lambda *arguments: run_script(TOOL, *arguments)[::2]


def test_arrays_hold_the_images_in_turn(tmp_path, convert):
    tree = write_folders(tmp_path / 'tree')
    out = tmp_path / 'out'
    assert convert(tree, out, '--size', 4) == (0, '')
    for part in ('train', 'test'):
        with np.load(out / f'{part}.npz') as file:
            images, labels = file['images'], file['labels']
        own = [x for x in every_image() if x[0] == part]
        own.sort(key=lambda x: (x[2], x[1]))
        expected = [coded_image(*x, size=4) for x in own]
        np.testing.assert_array_equal(images, expected)
        assert labels.tolist() == [label for _, label, _ in own]


def test_bad_sources_are_named(tmp_path, convert):
    status, errors = convert(tmp_path, tmp_path / 'out')
    assert status == 2
    assert 'holds no CIFAR10' in errors
    tree = write_folders(tmp_path / 'tree')
    (tree / 'test/bird/0003.png').write_bytes(b'no image')
    assert 'bird/0003.png cannot be read: ' in convert(tree, tmp_path / 'out')[1]
    (tree / 'train/bird').rename(tree / 'train/birds')
    assert "missing: ['bird'], unknown: ['birds']" in convert(tree, tmp_path / 'out')[1]
    archive = tmp_path / 'x.zip'
    archive.write_text('text')
    status, errors = convert(archive, tmp_path / 'out')
    assert status == 2
    assert 'x.zip holds no CIFAR10' in errors
    assert convert(tree, tmp_path / 'out', '--size', 33)[0] == 2


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason='needs cifar10_jpg.zip in ../shared/data')
def test_the_real_images(tmp_path, convert):
    from mmengine.registry import DATASETS

    shutil.unpack_archive(REAL, tmp_path / 'images')
    assert convert(tmp_path / 'images', tmp_path, '--size', 16)[0] == 0
    sizes = {}
    for split in ('train', 'test'):
        dataset = DATASETS.build(
            dict(type='mmrank.CIFAR10LT', data_root=str(tmp_path), split=split)
        )
        sizes[split] = len(dataset)
        assert dataset.get_data_info(0)['img'].shape == (16, 16, 3)
    assert sizes == {'train': 12406, 'test': 10000}
