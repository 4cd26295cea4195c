"""The data configs: settings of the papers, and real batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from chest_xray_tree import write_chest_xrays
from cifar_trees import write_arrays
from mmengine.config import Config
from mmengine.registry import METRICS, MODELS, TRANSFORMS, init_default_scope
from mmengine.runner import Runner
from retrieval_trees import write_images, write_inaturalist, write_sop, write_vehicles

from make_glyphs import write_glyphs

pytest.importorskip('mmpretrain')

FOLDER = Path(__file__).resolve().parents[2] / 'configs/_base_/datasets'
BENCHMARKS = ('sop', 'vehicleid', 'inaturalist2018_retrieval', 'class_folder')
# Neither square nor as large as the crop, one side far longer.
SHAPES = ((180, 400, 3), (300, 90, 3), (64, 64))


def write_benchmark(name, root):
    """Write lists and images; all splits have at least two classes."""
    if name == 'sop':
        expected = write_sop(root, num_classes=24)
        paths = [p for split in expected.values() for p in split]
    elif name == 'vehicleid':
        write_vehicles(root)
        lines = [f'{i:07d} {i // 3}' for i in range(60)]
        (root / 'train_test_split/train_list.txt').write_text('\n'.join(lines))
        paths = [f'image/{i:07d}.jpg' for i in (*range(60), *range(1000, 1018))]
    elif name == 'inaturalist2018_retrieval':
        write_inaturalist(root)
        paths = [f'train_val2018/Aves/{c}/{i}.jpg' for c in range(24) for i in range(3)]
        for split, own in (('train', paths[:60]), ('test', paths[60:])):
            path = root / f'Inat_dataset_splits/Inaturalist_{split}_set1.txt'
            path.write_text('\n'.join(own))
    else:
        paths = [f'class{c}/{i}.jpg' for c in range(40) for i in range(3)]
    for index, shape in enumerate(SHAPES):
        write_images(root, paths[index::3], shape)


def read(name, root):
    init_default_scope('mmpretrain')
    cfg = Config.fromfile(FOLDER / f'{name}.py')
    for split in (x for x in ('train', 'val', 'test') if f'{x}_dataloader' in cfg):
        loader = cfg[f'{split}_dataloader']
        loader.dataset.data_root = str(root)
        loader.num_workers = 0
        loader.persistent_workers = False
        if 'num_val_classes' in loader.dataset:
            loader.dataset.num_val_classes = 2
    return cfg


def first_batch(cfg, split, size=8):
    settings = cfg[f'{split}_dataloader']
    settings.batch_size = size
    if 'batch_size' in settings.sampler:
        settings.sampler.batch_size = size
    loader = Runner.build_dataloader(settings, seed=0)
    return next(iter(loader)), loader.dataset


@pytest.mark.parametrize(('batch', 'size'), [('56x4', 224), ('28x4', 112)])
@pytest.mark.parametrize('benchmark_name', BENCHMARKS)
def test_benchmark_configs_load_batches(tmp_path, benchmark_name, batch, size):
    write_benchmark(benchmark_name, tmp_path)
    cfg = read(f'{benchmark_name}_{batch}', tmp_path)
    assert cfg.train_dataloader.batch_size == size
    assert cfg.train_dataloader.sampler == dict(
        type='mmrank.PKSampler', batch_size=size, num_per_class=4, infinite=True
    )
    steps = [t.type for t in cfg.train_dataloader.dataset.pipeline]
    assert ('Rotate' in steps) == (batch == '28x4')
    assert {'RandomCrop', 'RandomFlip'} <= set(steps)
    steps = [t.type for t in cfg.test_dataloader.dataset.pipeline]
    assert not {'Rotate', 'RandomCrop', 'RandomFlip'} & set(steps)
    classes = {}
    for split in ('train', 'val', 'test'):
        data, dataset = first_batch(cfg, split)
        assert data['inputs'].shape[1:] == (3, 224, 224)
        assert data['inputs'].dtype == torch.uint8
        labels = [int(s.gt_label) for s in data['data_samples']]
        if split == 'train':
            assert len(labels) == 8
            assert len(set(labels)) == 2
        classes[split] = set(dataset.metainfo['classes'])
        if split != 'train':
            METRICS.build(cfg[f'{split}_evaluator'])
    assert not classes['train'] & classes['val']
    if benchmark_name != 'vehicleid':  # its lists share no numbering here
        assert not classes['train'] & classes['test']


@pytest.mark.parametrize('name', ['sop_28x4', 'omniglot_28_pk'])
def test_angles_are_uniform_up_to_fifteen_degrees(tmp_path, name):
    cfg = read(name, tmp_path)
    (settings,) = (t for t in cfg.train_dataloader.dataset.pipeline if t.type == 'Rotate')
    rotate = TRANSFORMS.build(settings)
    np.random.seed(0)
    angles = np.array([rotate.random_negative(rotate.random_magnitude()) for _ in range(999)])
    assert not any(rotate.random_disable() for _ in range(99))
    quantiles = np.quantile(angles, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(quantiles, [-15, -7.5, 0, 7.5, 15], atol=1.5)
    assert np.abs(angles).max() <= 15


def test_small_drawings(tmp_path):
    write_glyphs(tmp_path, 12, 5)
    cfg = read('class_folder_glyphs', tmp_path)
    for split in ('train', 'val', 'test'):
        inputs = first_batch(cfg, split)[0]['inputs']
        assert inputs.shape[1:] == (1, 28, 28)
        assert inputs.max() > 150
        assert inputs.float().mean() < 90
    omniglot = read('omniglot_28_pk', tmp_path)
    names = [
        set(omniglot[f'{split}_dataloader'].dataset.alphabets) for split in ('train', 'val', 'test')
    ]
    assert len(set.union(*names)) == sum(map(len, names)) == 5
    # Ink is 1.
    preprocessor = MODELS.build(omniglot.data_preprocessor)
    inputs = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    assert preprocessor(dict(inputs=inputs))['inputs'].flatten().tolist() == [0, 1]


CIFAR = [
    path.stem for pattern in ('*lt*', '*simclr*') for path in FOLDER.glob(f'cifar{pattern}.py')
]


@pytest.mark.parametrize('name', sorted({*CIFAR}))
def test_cifar_configs_load_batches(tmp_path, name):
    from mmpretrain.datasets import CIFAR100

    own_size = 16 if name.endswith('16') else 32
    if name.startswith('cifar100'):
        write_arrays(tmp_path, {'train': 9, 'test': 1}, CIFAR100.METAINFO['classes'], size=own_size)
    else:
        write_arrays(tmp_path, size=own_size)
    cfg = read(name, tmp_path)
    preprocessor = MODELS.build(cfg.data_preprocessor)
    splits = [s for s in ('train', 'val', 'test') if f'{s}_dataloader' in cfg]
    assert splits
    for split in splits:
        loader = cfg[f'{split}_dataloader']
        if 'datasets' in loader.dataset:  # of a linear evaluation, which has classes of 500 images
            continue
        ratio = loader.dataset.imbalance_ratio
        assert ratio == (100 if '_lt_' in name else 1)
        loader.dataset.imbalance_ratio = min(ratio, 5)
        loader.batch_size = 4
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


def test_chest_x_rays_load_batches(tmp_path, monkeypatch):
    from mmrank.datasets.long_tail.multi_label import ChestXray14

    write_chest_xrays(tmp_path)
    monkeypatch.setattr(ChestXray14, 'val_fraction', 0.3)
    cfg = read('chest_xray14_224', tmp_path)
    for split in ('train', 'val', 'test'):
        data, _ = first_batch(cfg, split, 4)
        assert data['inputs'].shape == (4, 3, 224, 224)
        scores = torch.stack([s.gt_score for s in data['data_samples']])
        assert scores.shape == (4, 14)
        assert scores.any()
