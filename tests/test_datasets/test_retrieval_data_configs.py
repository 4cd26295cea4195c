"""The data configs of retrieval: settings of the papers, and real batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import METRICS, TRANSFORMS, init_default_scope
from mmengine.runner import Runner
from retrieval_trees import write_images, write_inaturalist, write_sop, write_vehicles

from make_glyphs import GlyphsSpec, write_glyphs

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
        path = root / 'train_test_split/train_list.txt'
        path.write_text('\n'.join(lines))
        paths = [f'image/{i:07d}.jpg' for i in (*range(60), *range(1000, 1018))]
    elif name == 'inaturalist2018_retrieval':
        write_inaturalist(root)
        paths = [f'train_val2018/Aves/{c}/{i}.jpg' for c in range(24) for i in range(3)]
        lists = root / 'Inat_dataset_splits'
        for split, own in (('train', paths[:60]), ('test', paths[60:])):
            path = lists / f'Inaturalist_{split}_set1.txt'
            path.write_text('\n'.join(own))
    else:
        paths = [f'class{c}/{i}.jpg' for c in range(40) for i in range(3)]
    for index, shape in enumerate(SHAPES):
        write_images(root, paths[index::3], shape)


def read(name, root, batch_size=None):
    init_default_scope('mmpretrain')
    cfg = Config.fromfile(FOLDER / f'{name}.py')
    for split in ('train', 'val', 'test'):
        loader = cfg[f'{split}_dataloader']
        loader.dataset.data_root = str(root)
        loader.num_workers = 0
        loader.persistent_workers = False
        if 'num_val_classes' in loader.dataset:
            loader.dataset.num_val_classes = 2
        if batch_size is not None:
            loader.batch_size = batch_size
    if batch_size is not None:
        cfg.train_dataloader.sampler.batch_size = batch_size
    return cfg


@pytest.mark.parametrize('batch', ['56x4', '28x4'])
@pytest.mark.parametrize('benchmark_name', BENCHMARKS)
def test_benchmark_configs_load_batches(tmp_path, benchmark_name, batch):
    write_benchmark(benchmark_name, tmp_path)
    cfg = read(f'{benchmark_name}_{batch}', tmp_path, batch_size=8)
    classes = {}
    for split in ('train', 'val', 'test'):
        loader = Runner.build_dataloader(cfg[f'{split}_dataloader'], seed=0)
        data = next(iter(loader))
        assert data['inputs'].shape[1:] == (3, 224, 224)
        assert data['inputs'].dtype == torch.uint8
        labels = [int(s.gt_label) for s in data['data_samples']]
        if split == 'train':
            assert len(labels) == 8
            assert len(set(labels)) == 2
        classes[split] = set(loader.dataset.metainfo['classes'])
        if split != 'train':
            METRICS.build(cfg[f'{split}_evaluator'])
    assert not classes['train'] & classes['val']
    if benchmark_name != 'vehicleid':  # its lists share no numbering here
        assert not classes['train'] & classes['test']


@pytest.mark.parametrize('benchmark_name', BENCHMARKS)
def test_batches_of_the_papers(tmp_path, benchmark_name):
    for batch, size in (('56x4', 224), ('28x4', 112)):
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
    write_glyphs(tmp_path, GlyphsSpec(num_classes=12, per_class=5))
    cfg = read('class_folder_glyphs', tmp_path, batch_size=8)
    for split in ('train', 'val', 'test'):
        loader = Runner.build_dataloader(cfg[f'{split}_dataloader'], seed=0)
        inputs = next(iter(loader))['inputs']
        assert inputs.shape[1:] == (1, 28, 28)
        assert inputs.max() > 150
        assert inputs.float().mean() < 90
    omniglot = read('omniglot_28_pk', tmp_path)
    names = [
        set(omniglot[f'{split}_dataloader'].dataset.alphabets) for split in ('train', 'val', 'test')
    ]
    assert len(set.union(*names)) == sum(map(len, names)) == 5


def test_preprocessor_makes_ink_one(tmp_path):
    from mmengine.registry import MODELS

    cfg = read('omniglot_28_pk', tmp_path)
    preprocessor = MODELS.build(cfg.data_preprocessor)
    inputs = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    result = preprocessor(dict(inputs=inputs))['inputs']
    assert result.flatten().tolist() == [0, 1]
