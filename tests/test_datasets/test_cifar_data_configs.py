"""The data configs of CIFAR load batches, from sets made here."""

from pathlib import Path

import pytest
import torch
from cifar_trees import CIFAR10_NAMES, write_arrays
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner

pytest.importorskip('mmpretrain')

FOLDER = Path(__file__).resolve().parents[2] / 'configs/_base_/datasets'
NAMES = (
    'cifar10_binary_lt_16',
    'cifar10_binary_lt_32',
    'cifar10_lt_simclr_224',
    'cifar10_simclr_224',
    'cifar100_binary_lt_32',
    'cifar100_lt_simclr_224',
    'cifar100_simclr_224',
)


def write_set(name, root, size):
    """An array file of the classes that the config expects."""
    from mmpretrain.datasets import CIFAR100

    if name.startswith('cifar100'):
        classes = CIFAR100.METAINFO['classes']
        return write_arrays(root, {'train': 9, 'test': 1}, classes, size)
    return write_arrays(root, names=CIFAR10_NAMES, size=size)


@pytest.mark.parametrize('name', NAMES)
def test_loaders_and_preprocessor(tmp_path, name):
    own_size = 16 if name.endswith('16') else 32
    root = write_set(name, tmp_path, own_size)
    init_default_scope('mmpretrain')
    cfg = Config.fromfile(FOLDER / f'{name}.py')
    assert not set(cfg) & {'loader', 'dataset'}
    preprocessor = MODELS.build(cfg.data_preprocessor)
    splits = [s for s in ('train', 'val', 'test') if f'{s}_dataloader' in cfg]
    assert splits
    for split in splits:
        loader = cfg[f'{split}_dataloader']
        ratio = loader.dataset.imbalance_ratio
        assert ratio == (100 if '_lt_' in name else 1)
        loader.dataset.data_root = str(root)
        loader.dataset.imbalance_ratio = min(ratio, 5)
        loader.batch_size, loader.num_workers = 4, 0
        loader.persistent_workers = False
        built = Runner.build_dataloader(loader, seed=0)
        data = preprocessor(next(iter(built)), training=True)
        views = data['inputs'] if 'simclr' in name else [data['inputs']]
        assert len(views) == (2 if 'simclr' in name else 1)
        size = 224 if '224' in name else own_size
        for view in views:
            assert view.shape == (4, 3, size, size)
            assert view.dtype == torch.float32
        ids = [sample.sample_idx for sample in data['data_samples']]
        assert len(set(ids)) == 4
        if 'binary' in name:
            labels = {int(sample.gt_label) for sample in data['data_samples']}
            assert labels <= {0, 1}
