"""Every published detection config loads, builds and trains a step."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope

pytest.importorskip('mmdet')
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from mmrank.models import StableAPLoss

ROOT = Path(__file__).parents[2] / 'configs'
CONFIGS = sorted(ROOT.glob('[!_]*/*.py'))


def _batch(classes, size=128):
    torch.manual_seed(0)
    samples = []
    for box in ([8, 8, 72, 80], [40, 30, 120, 110]):
        sample = DetDataSample()
        sample.gt_instances = InstanceData(
            bboxes=torch.tensor([box], dtype=torch.float),
            labels=torch.tensor([classes - 1]),
        )
        sample.set_metainfo(
            dict(
                img_shape=(size, size),
                ori_shape=(size, size),
                pad_shape=(size, size),
                scale_factor=(1.0, 1.0),
            )
        )
        samples.append(sample)
    images = torch.randint(0, 255, (2, 3, size, size), dtype=torch.uint8)
    return dict(inputs=list(images), data_samples=samples)


def _without_download(cfg):
    """Random weights in the place of the published backbones."""
    if isinstance(cfg, dict):
        if 'init_cfg' in cfg:
            cfg['init_cfg'] = None
        for value in cfg.values():
            _without_download(value)


@pytest.mark.parametrize('path', CONFIGS, ids=lambda p: p.stem)
def test_config_trains_a_step_and_predicts(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.get('default_scope', 'mmdet'))
    _without_download(cfg.model.backbone)
    model = MODELS.build(cfg.model)
    model.init_weights()
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    classes = cfg.model.bbox_head.num_classes
    losses = [m for m in model.modules() if isinstance(m, StableAPLoss)]
    assert len(losses) == ('stable-ap' in path.stem)
    hooks = [h['type'] for h in cfg.get('custom_hooks', [])]
    for loss in losses:
        assert loss.rho == 1.0
        assert 'mmrank.RankingMonitorHook' in hooks
        exact = loss.mean_positive.mode == 'exact'
        assert ('mmrank.PreviousWeightsHook' in hooks) == exact
        # A single step has no previous one.
        loss.mean_positive.mode = 'plain'
    model.train()
    logs = model.train_step(_batch(classes), wrapper)
    assert logs['loss'].isfinite()
    assert logs['loss_cls'] > 0
    for loss in losses:
        assert loss.diagnostics['num_positive'] > 0
    model.eval()
    with torch.no_grad():
        results = model.val_step(_batch(classes))
    assert len(results) == 2


def test_twins_differ_in_the_loss_only():
    """The comparison is fair: data, schedule and model are the same."""
    twins = {
        p: p.with_name(p.name.replace('stable-ap', 'focal')) for p in CONFIGS
    }
    twins = {a: b for a, b in twins.items() if a != b and b.exists()}
    assert len(twins) >= 3
    for one, other in twins.items():
        one, other = Config.fromfile(one), Config.fromfile(other)
        for cfg in (one, other):
            head = cfg.model.bbox_head
            head.pop('loss_cls')
            head.pop('type')
            head.pop('head_type', None)
        for key in (
            'model',
            'train_dataloader',
            'val_dataloader',
            'test_dataloader',
            'train_cfg',
            'param_scheduler',
            'optim_wrapper',
        ):
            assert one[key] == other[key], key
