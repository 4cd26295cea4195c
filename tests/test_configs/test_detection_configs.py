"""Every published detection config loads, builds and trains a step."""

import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope

pytest.importorskip('mmdet')
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData
from random_weights import without_downloads

from mmrank import losses
from mmrank.losses import RankingLoss

ROOT = Path(__file__).parents[2] / 'configs'
# The last part of a config's name is its data set.
DETECTION = ('bccd', 'coco', 'coco128', 'demo', 'lvis-v1')
CONFIGS = sorted(
    path for path in ROOT.glob('[!_]*/*.py') if path.stem.rpartition('_')[2] in DETECTION
)
# The part of a config's name that says on what it trains.
RANKING = {
    'stable-ap': losses.StableAPLoss,
    'ap-loss': losses.APLoss,
    'alrp': losses.ALRPLoss,
    'rank-sort': losses.RankSortLoss,
    'dr-loss': losses.DRLoss,
}
BASELINES = ('focal', 'ce')


@cache
def _read(path):
    return Config.fromfile(path)


def _load(path):
    return copy.deepcopy(_read(path))


def _loss_name(path):
    names = [n for n in path.stem.split('_') if n in (*RANKING, *BASELINES)]
    assert len(names) == 1, f'{path.name} names {names} as its loss'
    return names[0]


def _is_two_stage(cfg):
    return 'roi_head' in cfg.model


def _class_heads(cfg):
    """The parts of a config that classify: dense heads and box heads."""
    if not _is_two_stage(cfg):
        return [cfg.model.bbox_head]
    heads = cfg.model.roi_head.bbox_head
    heads = heads if isinstance(heads, list) else [heads]
    return [cfg.model.rpn_head, *heads]


def _batch(classes, size=128):
    torch.manual_seed(0)
    samples = []
    for box in ([8, 8, 72, 80], [40, 30, 120, 110]):
        sample = DetDataSample()
        mask = np.zeros((1, size, size), dtype=np.uint8)
        mask[0, box[1] : box[3], box[0] : box[2]] = 1
        sample.gt_instances = InstanceData(
            bboxes=torch.tensor([box], dtype=torch.float),
            labels=torch.tensor([classes - 1]),
            masks=BitmapMasks(mask, size, size),
        )
        sample.set_metainfo(
            dict(
                img_shape=(size, size),
                ori_shape=(size, size),
                pad_shape=(size, size),
                scale_factor=(1.0, 1.0),
                exhaustive_labels=[classes - 1],
            )
        )
        samples.append(sample)
    images = torch.randint(0, 255, (2, 3, size, size), dtype=torch.uint8)
    return dict(inputs=list(images), data_samples=samples)


def _rankings(cfg):
    """How many rankings a config trains."""
    if 'decoder' not in cfg.model:
        return len(_class_heads(cfg))
    layers = cfg.model.decoder.num_layers
    return layers * (1 + ('dn_cfg' in cfg.model)) + cfg.model.as_two_stage


def _shrink(model):
    """The same detector with a narrow ResNet-50 and few proposals."""
    if model.backbone.type == 'SSDVGG':
        # The last level of 512 pixels would be smaller than its kernel.
        model.neck.last_kernel_size = 3
    if model.backbone.depth == 50:
        widths = model.neck.in_channels
        assert [256, 512, 1024, 2048][-len(widths) :] == widths
        model.backbone.base_channels = 8
        model.neck.in_channels = [width // 8 for width in widths]
    if 'decoder' in model:
        model.encoder.num_layers = 1
        model.num_queries = 40
    if 'roi_head' in model:
        for part in (model.train_cfg.rpn_proposal, model.test_cfg.rpn):
            part.max_per_img = 20


def _one_of_each_kind():
    """Configs; all but one of a detector and a loss are slow."""
    seen = set()
    for path in CONFIGS:
        kind = _read(path).model.type, _loss_name(path)
        marks = [pytest.mark.slow] if kind in seen else []
        seen.add(kind)
        yield pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize('path', _one_of_each_kind())
def test_config_trains_a_step_and_predicts(path):
    cfg = _load(path)
    init_default_scope(cfg.get('default_scope', 'mmdet'))
    without_downloads(cfg.model.backbone)
    _shrink(cfg.model)
    model = MODELS.build(cfg.model)
    model.init_weights()
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    heads = _class_heads(cfg)
    classes = heads[-1].num_classes
    ranking = [m for m in model.modules() if isinstance(m, RankingLoss)]
    kind = RANKING.get(_loss_name(path))
    rankings = _rankings(cfg)
    assert len(ranking) == (rankings if kind else 0)
    hooks = [h['type'] for h in cfg.get('custom_hooks', [])]
    states = []
    for loss in ranking:
        assert type(loss) is kind
        assert getattr(loss, 'rho', 'auto') == 'auto'
        assert 'mmrank.RankingMonitorHook' in hooks
        states.append(getattr(loss, 'mean_positive', None))
    exact = [s for s in states if s is not None and s.mode == 'exact']
    assert ('mmrank.PreviousWeightsHook' in hooks) == bool(exact)
    for state in exact:
        # A single step has no previous one.
        state.mode = 'plain'
    model.train()
    logs = model.train_step(_batch(classes), wrapper)
    assert logs['loss'].isfinite()
    names = [k for k in logs if k.endswith('cls') and 'loss' in k]
    assert len(names) == rankings
    for name in names:
        assert logs[name] > 0, name
    for loss in ranking:
        assert loss.diagnostics['num_positive'] > 0
    model.eval()
    with torch.no_grad():
        results = model.val_step(_batch(classes))
    assert len(results) == 2


def _without_loss(cfg):
    """What has to be the same in a comparison of losses."""
    for head in _class_heads(cfg):
        # aLRP takes the place of the box loss and fixes its scale; the others are free to average
        # and weigh it.
        for key in ('type', 'head_type', 'loss_cls', 'balance_boxes', 'box_average'):
            head.pop(key, None)
        head.get('loss_bbox', {}).pop('loss_weight', None)
    if _is_two_stage(cfg):
        # Cross-entropy needs samples, a ranking takes all boxes.
        cfg.model.train_cfg.rpn.pop('sampler')
        cfg.model.train_cfg.rcnn.pop('sampler')
    return cfg


def test_twins_differ_in_the_loss_only():
    """The comparison is fair: data, schedule and model are the same."""
    by_name = {p.stem: p for p in CONFIGS}
    compared = set()
    for path in CONFIGS:
        name = _loss_name(path)
        for baseline in BASELINES:
            other = by_name.get(path.stem.replace(f'_{name}_', f'_{baseline}_'))
            if name not in RANKING or other is None:
                continue
            compared.add(name)
            one, twin = (_without_loss(_load(p)) for p in (path, other))
            for key in (
                'model',
                'train_dataloader',
                'val_dataloader',
                'test_dataloader',
                'train_cfg',
                'param_scheduler',
                'optim_wrapper',
            ):
                assert one[key] == twin[key], f'{path.stem}: {key}'
    assert compared == set(RANKING)


def test_two_stage_configs_keep_every_box():
    """A ranking of sampled boxes is not the ranking that is measured."""
    found = 0
    for path in CONFIGS:
        cfg = _load(path)
        if not _is_two_stage(cfg) or _loss_name(path) not in RANKING:
            continue
        found += 1
        train = cfg.model.train_cfg
        assert train.rpn.sampler.type == 'PseudoSampler'
        stages = train.rcnn if isinstance(train.rcnn, list) else [train.rcnn]
        for stage in stages:
            sampler = stage.sampler
            assert sampler.type == 'RandomSampler'
            assert sampler.add_gt_as_proposals
            assert sampler.neg_pos_ub == -1
            assert sampler.pos_fraction == 1
            assert sampler.num > 10 * train.rpn_proposal.max_per_img
    assert found >= 4
