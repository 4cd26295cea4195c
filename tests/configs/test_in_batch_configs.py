"""Every config of in-batch sampling loads, builds and trains."""

import copy

import numpy as np
import pytest
import torch
from labelled import Labels, data_samples
from mmengine.registry import DATASETS, init_default_scope
from mmengine.runner import Runner
from published_configs import FOLDERS, LEAVES, load

from make_interactions import write_interactions
from mmrank.datasets.samplers import ClassPairSampler
from mmrank.losses import InBatchLoss
from mmrank.losses.two_tower.pointwise import POINTWISE
from mmrank.models import SparseLinearTower, TwoTower
from mmrank.registry import MODELS

FOLDER = FOLDERS / 'in_batch'
CONFIGS = {p.stem: p for p in LEAVES if p.stem.startswith('two-tower')}
M, N = 24, 16


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """The same made-up pairs in every form that the configs read."""
    root = tmp_path_factory.mktemp('pairs')
    write_interactions(root, M, N, per_user=5)
    for name in ('train', 'test'):
        lines = (root / f'{name}.csv').read_text().splitlines()[1:]
        pairs = [tuple(map(int, x.split(','))) for x in lines]
        lines = [f'{i}::{j}::5::0' for i, j in pairs]
        lines.append('0::999::3::0')  # not a positive
        (root / f'{name}.dat').write_text('\n'.join(lines) + '\n')
        texts = {}
        for i, j in pairs:
            texts.setdefault(i, []).append(str(j))
        lines = [f'{",".join(x)} {i + 1}:1 {M + i % 3 + 1}:0.5\n' for i, x in texts.items()]
        (root / f'{name}.txt').write_text(''.join(lines))
    return root


def of_small_data(cfg, root, work_dir):
    for split in ('train', 'val', 'test'):
        dataset = cfg[f'{split}_dataloader'].dataset
        dataset.data_root = str(root)
        for key in ('ann_file', 'train_ann_file'):
            if key in dataset:
                dataset[key] = dataset[key].replace('.csv.gz', '.csv')
    towers = cfg.model.left, cfg.model.right
    for tower, size in zip(towers, (M, N)):
        if 'num_entities' in tower:
            tower.num_entities = size
        else:
            tower.num_features = M + 3
    cfg.train_dataloader.sampler.batch_size = cfg.train_dataloader.batch_size = 20
    cfg.model.top_k = 5
    cfg.val_evaluator.k = cfg.test_evaluator.k = (1, 5)
    cfg.train_cfg.max_epochs = 1
    cfg.log_level, cfg.experiment_name = 'ERROR', f'{work_dir.name}_test'
    cfg.work_dir = str(work_dir)
    return cfg


@pytest.mark.parametrize('name', CONFIGS)
def test_config_trains_and_evaluates(name, data, tmp_path):
    cfg = of_small_data(load(CONFIGS[name]), data, tmp_path)
    runner = Runner.from_cfg(cfg)
    runner.train()
    loss = runner.model.pair_loss
    assert isinstance(runner.model, TwoTower)
    assert isinstance(loss, InBatchLoss)
    mode, _, pointwise = name.split('_')[1].rpartition('-')
    assert loss.mode == mode.replace('-', '_')
    assert type(loss.pointwise) is POINTWISE[pointwise]
    assert runner.iter == loss.counts.num_positives // 20
    figures = runner.val_loop.run()
    assert 0 < figures['top_k/recall@5'] <= 100
    assert sorted(tmp_path.glob('best_top_k_*'))
    texts = name.endswith('eurlex')
    assert isinstance(runner.model.left, SparseLinearTower) == texts


def test_pairs_of_images():
    pytest.importorskip('mmpretrain')

    cfg = load(FOLDER / 'conv4_unbiased-omega-logistic_omniglot-pairs.py')
    loader = cfg.train_dataloader
    assert loader.batch_size == 2 * loader.sampler.batch_size
    assert DATASETS.get(loader.dataset.type) is not None
    init_default_scope(cfg.default_scope)
    labels = np.repeat(np.arange(66), 4)
    sampler = ClassPairSampler(Labels(labels), 8, seed=0)
    ids = sampler.rank_batch(0)
    images = torch.rand(16, 1, 28, 28)
    batch = dict(inputs=images, data_samples=data_samples(labels[ids].tolist(), ids))
    model = MODELS.build(copy.deepcopy(cfg.model))
    model.head.set_class_labels(labels)
    model(**batch, mode='loss')['loss'].backward()
    weights = [p for p in model.parameters() if p.requires_grad]
    assert all(torch.isfinite(p.grad).all() for p in weights)
