"""Every detection config and every ranking loss trains a step and predicts."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope
from published_configs import FOLDERS, LEAVES, load, rows, without_downloads

pytest.importorskip('mmdet')
from mmdet.engine.hooks import NumClassCheckHook
from mmdet.registry import MODELS
from small_rcnn import make_batch

from mmrank import losses
from mmrank.losses import HeadLoss

# The last part of a config's name is its data set, one before it names the loss.
CONFIGS = [
    path
    for path in LEAVES
    if path.stem.endswith(('_bccd', '_coco', '_demo', '_lvis-v1'))
]
LOSSES = FOLDERS / 'stable_ap/coco128_losses.yaml'
KINDS = {
    'ap_loss': losses.APLoss,
    'alrp': losses.ALRPLoss,
    'rank_sort': losses.RankSortLoss,
    'dr_loss': losses.DRLoss,
}


def _is_two_stage(cfg):
    return 'roi_head' in cfg.model


def _class_heads(cfg):
    """The parts of a config that classify: dense heads and box heads."""
    if not _is_two_stage(cfg):
        return [cfg.model.bbox_head]
    return [cfg.model.rpn_head, cfg.model.roi_head.bbox_head]


def _batch(classes):
    """Objects of the last class alone, for which both images are annotated."""
    batch = make_batch(size=128)
    for sample in batch['data_samples']:
        sample.gt_instances.labels.fill_(classes - 1)
        sample.set_metainfo(dict(exhaustive_labels=[classes - 1]))
    return batch


def _rankings(cfg):
    """How many rankings a config trains."""
    if 'decoder' not in cfg.model:
        return len(_class_heads(cfg))
    layers = cfg.model.decoder.num_layers
    return layers * (1 + ('dn_cfg' in cfg.model)) + cfg.model.as_two_stage


def _shrink(model):
    """The same detector with a narrow ResNet-50 and few proposals."""
    if model.backbone.get('depth') == 50:
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


def check(cfg, kind):
    """Train a step of a small copy and predict; ``kind`` is the ranking loss, or None."""
    init_default_scope(cfg.get('default_scope', 'mmdet'))
    without_downloads(cfg.model.backbone)
    _shrink(cfg.model)
    model = MODELS.build(cfg.model)
    model.init_weights()
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    classes = _class_heads(cfg)[-1].num_classes
    ranking = [m for m in model.modules() if isinstance(m, HeadLoss)]
    rankings = _rankings(cfg)
    assert len(ranking) == (rankings if kind else 0)
    hooks = [h['type'] for h in cfg.get('custom_hooks', [])]
    names = [f'class {i}' for i in range(classes)]
    loader = SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=names)))
    # mmdet's hook counts every module with num_classes: no loss and no state may look like a head.
    NumClassCheckHook()._check_head(SimpleNamespace(model=model, train_dataloader=loader), 'train')
    states = []
    for loss in ranking:
        assert type(loss) is kind
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


@pytest.mark.parametrize('path', CONFIGS, ids=lambda p: p.stem)
def test_config_trains_a_step_and_predicts(path):
    cfg = load(path)
    stable = 'stable-ap' in path.stem
    graded = losses.GradedAPLoss if 'graded-ap' in path.stem else None
    check(cfg, losses.StableAPLoss if stable else graded)
    if stable:
        for head in _class_heads(cfg):
            assert head.loss_cls.get('rho', 'auto') == 'auto'


@pytest.mark.parametrize('name', KINDS)
def test_row_trains_a_step_and_predicts(name):
    check(load(*rows(LOSSES)[name]), KINDS[name])


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
    keys = ('model', 'train_dataloader', 'val_dataloader', 'test_dataloader', 'train_cfg')
    return {key: cfg[key] for key in (*keys, 'param_scheduler', 'optim_wrapper')}


COMPARED = {
    name: [*rows(FOLDERS / f'stable_ap/{name}.yaml').values()]
    for name in ('bccd_losses', 'coco128_losses', 'dino_bccd_seeds')
}
PAIRS = {
    'stable_ap/faster-rcnn_r18_fpn_{}_bccd': ('stable-ap', 'ce'),
    'ap_loss/atss_lite0_fpn_{}_demo': ('graded-ap', 'focal'),
}
COMPARED |= {
    name: [(FOLDERS / f'{name.format(x)}.py', {}) for x in names] for name, names in PAIRS.items()
}


@pytest.mark.parametrize('name', COMPARED)
def test_configs_differ_in_the_loss_only(name):
    """The comparison is fair: data, schedule and model are the same."""
    first, *others = (load(*x) for x in COMPARED[name])
    if name in PAIRS:
        (other,) = others
        differing = {k for k in {*first, *other} if first.get(k) != other.get(k)}
        assert differing <= {'model', 'custom_hooks'}
    expected = _without_loss(first)
    assert all(_without_loss(other) == expected for other in others)


def test_two_stage_configs_keep_every_box():
    """A ranking of sampled boxes is not the ranking that is measured."""
    found = 0
    for path in CONFIGS:
        cfg = load(path)
        if not _is_two_stage(cfg) or 'stable-ap' not in path.stem:
            continue
        found += 1
        train = cfg.model.train_cfg
        assert train.rpn.sampler.type == 'PseudoSampler'
        sampler = train.rcnn.sampler
        assert sampler.type == 'RandomSampler'
        assert sampler.add_gt_as_proposals
        assert sampler.neg_pos_ub == -1
        assert sampler.pos_fraction == 1
        assert sampler.num > 10 * train.rpn_proposal.max_per_img
    assert found == 2
