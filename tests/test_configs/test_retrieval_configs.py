"""Every published retrieval config loads, builds, trains and predicts."""

import copy
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, HOOKS, MODELS, init_default_scope

pytest.importorskip('mmpretrain')
from mmpretrain.structures import DataSample

from mmrank import losses
from mmrank.engine.hooks import PreviousWeightsHook
from mmrank.losses import RankingLoss

ROOT = Path(__file__).parents[2] / 'configs'
RETRIEVAL = ('omniglot', 'sop', 'vehicleid', 'inaturalist')
CONFIGS = sorted(
    path for path in ROOT.glob('[!_]*/*.py') if path.stem.rpartition('_')[2] in RETRIEVAL
)
# The rivals on other data have the losses and models of those on SOP.
TRAINED = [
    path
    for path in CONFIGS
    if path.parent.name in ('stable_ap', 'soprc')
    or not path.stem.endswith(('vehicleid', 'inaturalist'))
]
# What a config's name says of its loss.
NAMED = {
    'stable-ap': losses.StableAPLoss,
    'stable-ap-xbm': losses.StableAPLoss,
    'stable-ap-mixup': losses.StableAPLoss,
    'soprc': losses.SOPRCLoss,
    'smooth-ap': losses.SmoothAPLoss,
    'listwise-ap': losses.ListwiseAPLoss,
    'blackbox-ap': losses.BlackBoxAPLoss,
    'auc-sigmoid': losses.AUCLoss,
    'auc-huber': losses.AUCLoss,
    'contrastive': losses.PMLLoss,
    'triplet': losses.PMLLoss,
    'multi-similarity': losses.PMLLoss,
    'fast-ap': losses.PMLLoss,
    'xbm': losses.PMLLoss,
}


@cache
def _read(path):
    return Config.fromfile(path)


def _load(path):
    return copy.deepcopy(_read(path))


def _backbone(cfg):
    backbone = cfg.model.image_encoder[0]
    return backbone.get('backbone', backbone)


def _batch(classes, channels, size=32):
    g = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, classes - 1, classes - 1])
    images = torch.randint(0, 255, (8, channels, size, size), dtype=torch.uint8, generator=g)
    samples = [
        DataSample(metainfo=dict(sample_idx=i)).set_gt_label(label)
        for i, label in enumerate(labels)
    ]
    return dict(inputs=list(images), data_samples=samples)


@pytest.mark.parametrize('path', TRAINED, ids=lambda p: p.stem)
def test_config_trains_and_predicts(path):
    name = path.stem.split('_')[1]
    kind = NAMED[name]
    if kind is losses.PMLLoss:
        pytest.importorskip('pytorch_metric_learning')
    cfg = _load(path)
    init_default_scope(cfg.default_scope)
    small = path.stem.endswith('omniglot')
    if not small:
        backbone = _backbone(cfg)
        assert backbone.init_cfg.checkpoint == 'torchvision://resnet50'
        # The same network, narrow and without the download.
        backbone.update(init_cfg=None, base_channels=8, stem_channels=8)
        cfg.model.image_encoder[-1].in_channels = 256
    preprocessor = cfg.model.setdefault('data_preprocessor', cfg.data_preprocessor)
    model = MODELS.build(cfg.model)
    model.init_weights()
    assert type(model.head.loss_module) is kind
    assert (model.head.memory is not None) == name.endswith('xbm')
    assert model.freeze_bn != small
    hooks = [HOOKS.build(hook) for hook in cfg.custom_hooks]
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    classes = cfg.model.head.num_classes
    wants = getattr(model.head.loss_module, 'wants_class_counts', False)
    assert wants == any(type(h).__name__ == 'ClassCountsHook' for h in hooks)
    if wants:
        model.head.loss_module.set_class_counts([20] * classes)
    batch = _batch(classes, 1 if small else len(preprocessor.mean))
    model.train()
    runner = SimpleNamespace(model=model, optim_wrapper=wrapper)
    for _ in range(2):
        for hook in hooks:
            if isinstance(hook, PreviousWeightsHook):
                hook.before_train_iter(runner, 0, batch)
        logs = model.train_step(batch, wrapper)
    assert logs['loss'].isfinite()
    if isinstance(model.head.loss_module, RankingLoss):
        assert model.head.loss_module.diagnostics['num_positive'] > 0
    model.eval()
    with torch.no_grad():
        results = model.val_step(batch)
    assert len(results) == 8
    features = torch.stack([x.feature for x in results])
    torch.testing.assert_close(features.norm(dim=1), torch.ones(8))


def _without_loss(cfg):
    """What has to be the same in a comparison of losses."""
    cfg.model.head.pop('loss')
    cfg.model.head.pop('memory', None)
    return cfg


@pytest.mark.parametrize('data', RETRIEVAL)
def test_twins_differ_in_the_loss_only(data):
    """The comparison is fair: data, schedule and model are the same."""
    keys = ['model', 'train_dataloader', 'val_dataloader', 'test_dataloader']
    keys += ['train_cfg', 'test_evaluator', 'randomness']
    if data == 'omniglot':
        keys += ['optim_wrapper', 'param_scheduler']
        first = ROOT / 'stable_ap/conv4_stable-ap_omniglot.py'
    else:
        # The paper trains the rivals with Adam, its code with other steps.
        (first,) = ROOT.glob(f'soprc/r50_soprc_*_{data}.py')
    one = _without_loss(_load(first))
    twins = [p for p in CONFIGS if p.stem.endswith(data) and p.parent.name != first.parent.name]
    assert len(twins) >= 10
    for path in twins:
        if path.stem.startswith('r50_stable-ap'):
            continue
        twin = _without_loss(_load(path))
        for key in keys:
            assert one[key] == twin[key], f'{path.stem}: {key}'


def test_batches_of_sampler_and_loader_agree():
    for path in CONFIGS:
        loader = _load(path).train_dataloader
        assert loader.batch_size == loader.sampler.batch_size, path.stem
        assert loader.sampler.infinite, path.stem
        assert DATASETS.get(loader.dataset.type) is not None, path.stem
