"""The converter of CIFAR on sets made here."""

from pathlib import Path

import numpy as np
import pytest
from cifar_trees import coded_image, every_image, write_folders
from mmengine.registry import DATASETS

pytest.importorskip('mmpretrain')

TOOL = Path(__file__).resolve().parents[2] / 'tools/dataset_converters/cifar10.py'


def test_arrays_hold_the_images_in_turn(tmp_path, run_script):
    tree = write_folders(tmp_path / 'tree')
    out = tmp_path / 'out'
    assert run_script(TOOL, tree, out, '--size', 4)[::2] == (0, '')
    for part in ('train', 'test'):
        with np.load(out / f'{part}.npz') as file:
            images, labels = file['images'], file['labels']
        own = [x for x in every_image() if x[0] == part]
        own.sort(key=lambda x: (x[2], x[1]))
        expected = [coded_image(*x, size=4) for x in own]
        np.testing.assert_array_equal(images, expected)
        assert labels.tolist() == [label for _, label, _ in own]
    train = dict(type='mmrank.CIFAR10LT', data_root=str(out), imbalance_ratio=1)
    assert len(DATASETS.build(train)) == 400


def test_bad_sources_are_named(tmp_path, run_script):
    status, _, errors = run_script(TOOL, tmp_path, tmp_path / 'out')
    assert status == 2
    assert 'holds no CIFAR10' in errors
    tree = write_folders(tmp_path / 'tree')
    (tree / 'test/bird/0003.png').write_bytes(b'no image')
    assert 'bird/0003.png cannot be read: ' in run_script(TOOL, tree, tmp_path / 'out')[2]
    (tree / 'train/bird').rename(tree / 'train/birds')
    assert "missing: ['bird'], unknown: ['birds']" in run_script(TOOL, tree, tmp_path / 'out')[2]
    (tmp_path / 'x.zip').write_text('text')
    assert 'x.zip holds no CIFAR10' in run_script(TOOL, tmp_path / 'x.zip', tmp_path / 'out')[2]
    assert run_script(TOOL, tree, tmp_path / 'out', '--size', 33)[0] == 2
