"""Every published long-tail config loads, builds, trains and predicts."""

import copy
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS, init_default_scope

pytest.importorskip('mmpretrain')
from mmpretrain.models.losses import CrossEntropyLoss, FocalLoss
from mmpretrain.structures import DataSample

from mmrank import losses
from mmrank.engine.hooks import PreviousWeightsHook

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / 'configs/long_tail').glob('*.py'))
# What a config's name says of its loss.
NAMED = {
    'ce': CrossEntropyLoss,
    'cb-ce': losses.ClassBalancedCELoss,
    'focal': FocalLoss,
    'ldam': losses.LDAMLoss,
    'mauc': losses.MAUCLoss,
    'smooth-ap': losses.SmoothAPLoss,
    'soap': losses.SOAPLoss,
    'soprc': losses.SOPRCLoss,
    'stable-ap': losses.StableAPLoss,
}
KINDS = ['smallconv', 'resnet18', 'resnet50']


@cache
def _read(path):
    return Config.fromfile(path)


def _load(path):
    return copy.deepcopy(_read(path))


def _shrink(cfg):
    """A small network, for what is not about the network."""
    cfg.model.backbone = dict(type='mmrank.SmallConvNet', in_channels=3, channels=8, num_blocks=2)
    cfg.model.head.in_channels = 8


def _batch(classes, size=16):
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (12, 3, size, size), dtype=torch.uint8, generator=g)
    made = []
    for i in range(12):
        sample = DataSample(metainfo=dict(sample_idx=i))
        if classes == 1:
            sample.set_gt_label(int(i % 3 == 0))
        else:
            sample.set_gt_label([c for c in range(classes) if i % (c + 2) == 0])
        made.append(sample)
    return dict(inputs=list(images), data_samples=made)


@pytest.mark.parametrize('path', CONFIGS, ids=lambda p: p.stem)
def test_config_trains_and_predicts(path):
    cfg = _load(path)
    init_default_scope(cfg.default_scope)
    _shrink(cfg)
    cfg.model.data_preprocessor = cfg.data_preprocessor
    model = MODELS.build(cfg.model)
    loss = model.head.loss_module
    assert type(loss) is NAMED[path.stem.split('_')[1]]
    hooks = [HOOKS.build(hook) for hook in cfg.custom_hooks]
    names = {type(hook).__name__ for hook in hooks}
    assert {'ClassCountsHook', 'DeferredReweightingHook'} <= names
    assert METRICS.build(cfg.test_evaluator).prefix == 'ranking'
    assert DATASETS.get(cfg.train_dataloader.dataset.type) is not None
    classes = cfg.model.head.num_classes
    if getattr(loss, 'wants_class_counts', False):
        loss.set_class_counts([4] * classes, 12)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    batch = _batch(classes)
    model.train()
    runner = SimpleNamespace(model=model, optim_wrapper=wrapper)
    for _ in range(2):
        for hook in hooks:
            if isinstance(hook, PreviousWeightsHook):
                hook.before_train_iter(runner, 0, batch)
        logs = model.train_step(batch, wrapper)
    assert logs['loss'].isfinite()
    assert logs['loss'] > 0
    model.eval()
    with torch.no_grad():
        results = model.val_step(batch)
    scores = torch.stack([x.pred_score for x in results])
    assert scores.shape == (12, classes)
    assert ((scores >= 0) & (scores <= 1)).all()


@pytest.mark.parametrize('kind', KINDS)
def test_head_fits_the_network(kind):
    path = next(p for p in CONFIGS if p.stem.startswith(kind))
    cfg = _load(path)
    init_default_scope(cfg.default_scope)
    if kind == 'resnet50':
        checkpoint = cfg.model.backbone.init_cfg.checkpoint
        assert checkpoint == 'torchvision://resnet50'
    cfg.model.backbone.init_cfg = None
    model = MODELS.build(cfg.model).eval()
    with torch.no_grad():
        scores = model(torch.zeros(1, 3, 32, 32))
    assert scores.shape == (1, cfg.model.head.num_classes)


@pytest.mark.parametrize('kind', KINDS)
def test_twins_differ_in_the_loss_only(kind):
    """The comparison is fair: data, schedule and model are the same."""
    groups = {}
    for path in CONFIGS:
        name, _, data = path.stem.split('_', 2)
        if name == kind:
            groups.setdefault(data, {})[path.stem.split('_')[1]] = path
    assert len(groups) == (1 if kind == 'resnet50' else 2)
    for data, twins in groups.items():
        if not data.endswith('rate'):
            assert set(twins) == set(NAMED)
        seen = []
        for path in twins.values():
            cfg = _load(path)
            cfg.model.head.pop('loss')
            content = cfg.to_dict()
            content.pop('loss')
            content.pop('filename', None)
            # Equation 6 takes a second forward; nothing else depends on it.
            content['custom_hooks'] = [
                hook
                for hook in content['custom_hooks']
                if hook['type'] != 'mmrank.PreviousWeightsHook'
            ]
            seen.append(content)
        assert all(content == seen[0] for content in seen)


def test_batches_of_sampler_and_loader_agree():
    found = [p for p in CONFIGS if p.stem.endswith('rate')]
    assert len(found) == 3
    for path in found:
        loader = _load(path).train_dataloader
        assert loader.batch_size == loader.sampler.batch_size, path.stem
        assert loader.sampler.infinite, path.stem


def test_metafile_names_every_config():
    folder = ROOT / 'configs/long_tail'
    meta = yaml.safe_load((folder / 'metafile.yml').read_text('utf-8'))
    named = {model['Config'] for model in meta['Models']}
    assert named == {str(p.relative_to(ROOT)) for p in CONFIGS}
    listed = (ROOT / 'model-index.yml').read_text('utf-8')
    assert 'configs/long_tail/metafile.yml' in listed
