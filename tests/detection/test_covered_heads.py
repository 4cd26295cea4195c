"""Every mmdet dense head that the README lists, and those it refuses."""

import pytest
import torch

pytest.importorskip('mmdet')
import mmdet.models.dense_heads as dense_heads
from covered_heads import MORE_HEADS, build_covered, covered_inputs, covered_losses
from mmengine.config import ConfigDict
from mmengine.registry import DefaultScope
from small_heads import (
    FOCAL,
    HEADS,
    STABLE_AP,
    TEST_CFG,
    build_head,
    head_losses,
    make_inputs,
    objective,
    summed,
    watch,
)

from mmrank.losses import StableAPLoss
from mmrank.models import ListwiseHead
from mmrank.models.dense_heads.adapted_hosts import _joint_logits
from mmrank.models.dense_heads.host_heads import REFUSED, TRAITS, refuse_hosts
from mmrank.registry import MODELS

COVERED = sorted({**HEADS, **MORE_HEADS})
# Their final scores are products with a predicted centre-ness or IoU.
MULTIPLIED = ('ATSSHead', 'BoxInstBboxHead', 'CondInstBboxHead', 'DDODHead', 'FCOSHead')
MULTIPLIED += ('NASFCOSHead', 'SABLRetinaHead')
NO_BOXES = [name for name in COVERED if name in TRAITS and TRAITS[name].no_boxes is not None]


def _two_iterations(name, head):
    optimizer = torch.optim.SGD(head.parameters(), lr=0.001)
    for iteration in range(2):
        calls = watch(head.loss_cls.loss)
        outs, losses = covered_losses(name, head, epoch=iteration)
        value = objective(losses)
        assert value.isfinite()
        optimizer.zero_grad()
        value.backward()
        for parameter in head.parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all()
        optimizer.step()
        # One call, with every score of every level and image.
        (scores, target, *_) = calls[-1]
        assert scores.numel() == sum(x.numel() for x in outs[0])
        assert target.shape == scores.shape[:1]
        assert (target < scores.size(1)).any()
    assert len(calls) == 1
    return losses


def _classification(head):
    return {key: p for key, p in head.named_parameters() if 'cls' in key and 'bbox' not in key}


@pytest.mark.parametrize('name', COVERED)
def test_head_trains(name):
    head = build_covered(name, STABLE_AP)
    losses = _two_iterations(name, head)
    key = 'loss_rpn_cls' if 'RPN' in name else 'loss_cls'
    assert losses[key].dim() == 0
    assert losses[key] > 0
    head.zero_grad()
    losses = covered_losses(name, head)[1]
    losses[key].backward()
    branch = _classification(head)
    assert branch
    assert all(p.grad.abs().sum() > 0 for p in branch.values())
    # A batch without objects, as the first one.
    head = build_covered(name, STABLE_AP)
    losses = covered_losses(name, head, boxes=False, epoch=1)[1]
    assert losses[key] == 0
    assert head.loss_cls.loss.mean_positive.num_updates.item() == 0
    objective(losses).backward()
    assert all(p.grad is not None for p in _classification(head).values())
    for parameter in head.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize('name', COVERED)
def test_head_predicts_centred_scores(name):
    """The mean positive score shows as 0.5."""

    def highest(centre):
        test_cfg = ConfigDict(TEST_CFG, score_thr=0.0)
        head = build_covered(name, STABLE_AP, centre_scores=centre, test_cfg=test_cfg)
        head.loss_cls.loss.mean_positive.mean.fill_(-4.0)
        features, _, metas = covered_inputs(name)
        if not name.startswith('GA'):  # Masked convolutions require CUDA.
            head.eval()
        with torch.no_grad():
            outs = head(features)
            head.eval()
            results = head.predict_by_feat(*outs, batch_img_metas=metas)
        assert all(len(r) > 0 for r in results)
        return torch.cat([r.scores for r in results]).max()

    centred, plain = highest(True), highest(False)
    assert 0 < plain < centred <= 1
    if name not in MULTIPLIED:
        torch.testing.assert_close(centred.logit(), plain.logit() + 4, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    'name',
    # The others weigh their levels or require qualities as targets.
    sorted(
        set(COVERED)
        - {'DDODHead', 'GFLHead', 'LDHead', 'TOODHead', 'VFNetHead'}
        - {'RTMDetHead', 'RTMDetSepBNHead', 'YOLOXHead'}
        - {'RTMDetInsHead', 'RTMDetInsSepBNHead'}
    ),
)
def test_gathering_changes_nothing_for_a_pointwise_loss(name):
    """With focal loss every output is that of the stock head."""
    torch.manual_seed(0)
    stock = covered_losses(name, build_covered(name, FOCAL, listwise=False))
    torch.manual_seed(0)
    ours = covered_losses(name, build_covered(name, FOCAL))
    assert stock[1].keys() == ours[1].keys()
    for key, value in stock[1].items():
        torch.testing.assert_close(summed(ours[1][key]), summed(value))


#: The IoU of a box is told as its loss is, of which every head is tried.
WITH_BOXES = [(name, 'ALRPLoss') for name in COVERED if name not in NO_BOXES]
WITH_BOXES += [
    pytest.param(name, 'RankSortLoss', marks=[] if name in HEADS else pytest.mark.slow)
    for name, _ in WITH_BOXES
]


@pytest.mark.parametrize(('name', 'loss'), WITH_BOXES)
def test_head_trains_on_losses_with_boxes(name, loss):
    head = build_covered(name, dict(type=f'mmrank.{loss}'))
    losses = _two_iterations(name, head)
    key = {'RepPointsHead': 'loss_pts_refine', 'VFNetHead': 'loss_bbox_rf'}.get(
        name, 'loss_rpn_bbox' if 'RPN' in name else 'loss_bbox'
    )
    if loss == 'ALRPLoss':
        assert losses[key].dim() == 0
    assert summed(losses[key]) > 0
    empty = covered_losses(name, head, boxes=False)[1]
    assert summed(empty[key]) == 0
    objective(empty).backward()


def _places(value, levels):
    """(level, image, y, x) of the outputs that a value depends on."""
    grads = torch.autograd.grad(value, levels, retain_graph=True, allow_unused=True)
    return {
        (level, image, y, x)
        for level, grad in enumerate(grads)
        if grad is not None
        for image, _, y, x in grad.nonzero().tolist()
    }


@pytest.mark.parametrize('name', sorted(set(COVERED) - set(NO_BOXES)))
def test_boxes_and_scores_of_a_row_are_of_one_place(name):
    """The k-th box told is predicted where the k-th positive is scored."""
    head = build_covered(name, dict(type='mmrank.ALRPLoss'))
    calls = watch(head.loss_cls.loss)
    outs, _ = covered_losses(name, head, epoch=1, leaves=True)
    ((scores, target, *_, kwargs),) = calls
    rows = (target < scores.size(1)).nonzero().squeeze(1)
    box_loss = kwargs['box_loss']
    assert box_loss.shape == rows.shape
    boxes = outs[2 if name in ('RepPointsHead', 'VFNetHead') else 1]
    told = {}
    for k in {0, len(rows) // 3, len(rows) // 2, len(rows) - 1}:
        place = _places(scores[rows[k]].sum(), outs[0])
        told[k] = place
        assert len(place) == 1
        assert _places(box_loss[k], boxes) == place
    assert len({tuple(place) for place in told.values()}) > 1


@pytest.mark.parametrize('name', NO_BOXES)
def test_losses_with_boxes_are_refused(name):
    with pytest.raises(ValueError, match=f'which {name} does not provide'):
        build_covered(name, dict(type='mmrank.RankSortLoss'))


OTHERS = sorted({*REFUSED, 'LADHead', 'PISASSDHead', 'SOLOHead'})


@pytest.mark.parametrize('name', [name for name in OTHERS if hasattr(dense_heads, name)])
def test_other_heads_are_refused_when_built(name):
    reason = REFUSED.get(name, '')
    with pytest.raises(TypeError, match=f'does not support {name}: {reason}') as caught:
        MODELS.build(
            dict(type='mmrank.ListwiseHead', head_type=f'mmdet.{name}', loss_cls=STABLE_AP)
        )
    if name in ('DDQDETRHead', 'GroundingDINOHead'):
        fix = "Fix: type='mmrank.ListwiseHead', head_type='mmdet.DINOHead'"
        assert fix in str(caught.value)
    if name != 'SOLOHead':
        assert f'or the own losses of {name}' in str(caught.value)
    if name in REFUSED:
        with pytest.raises(TypeError, match=f'does not support {name}: {reason}'):
            refuse_hosts(dict(bbox_head=dict(type=f'mmdet.{name}', loss_cls=STABLE_AP)))
    refuse_hosts(dict(bbox_head=dict(type=name, loss_cls=dict(type='FocalLoss'))))


@pytest.mark.parametrize('loss', ['PMLLoss', 'SogCLRLoss', 'BalancedSoftmaxLoss', 'InBatchLoss'])
def test_a_loss_without_scores_of_boxes_is_refused_in_words_of_the_config(loss):
    for head in ('ListwiseHead', 'ListwiseBBoxHead'):
        stock = 'mmdet.RetinaHead' if head == 'ListwiseHead' else 'mmdet.Shared2FCBBoxHead'
        config = dict(type=f'mmrank.{head}', head_type=stock, loss_cls=dict(type=f'mmrank.{loss}'))
        with pytest.raises(TypeError, match=f"loss_cls.type='mmrank.{loss}' does not take") as got:
            MODELS.build(config)
        assert 'use_sigmoid' not in str(got.value)


def test_no_box_head_of_mmdet_is_forgotten():
    """A head is covered, refused, or derived from a refused one."""
    from mmdet.models.dense_heads.base_dense_head import BaseDenseHead

    known = {*COVERED, *REFUSED, 'AnchorHead', 'AnchorFreeHead'}
    known |= {'GuidedAnchorHead'}
    for name in dense_heads.__all__:
        head = getattr(dense_heads, name)
        if issubclass(head, BaseDenseHead):
            names = {base.__name__ for base in head.__mro__}
            assert name in known or names & set(REFUSED)


def test_yolox_ranks_the_product_that_it_shows():
    """Classes and objectness of all points, no objectness loss besides."""
    classes, objects = 30 * torch.randn(2, 1, 4, 3, 3, dtype=torch.double)
    objects = objects[:, :1]
    product = classes.sigmoid() * objects.sigmoid()
    inside = (product > 1e-12) & (product < 1 - 1e-4)
    torch.testing.assert_close(_joint_logits(classes, objects)[inside], product.logit()[inside])
    assert _joint_logits(-1e4 * torch.ones(1), 1e4 * torch.ones(1)) == -1e4

    head = build_covered('YOLOXHead', STABLE_AP)
    calls = watch(head.loss_cls.loss)
    outs, losses = covered_losses('YOLOXHead', head)
    assert set(losses) == {'loss_cls', 'loss_bbox'}
    losses['loss_cls'].backward()
    for conv in head.multi_level_conv_obj:
        assert conv.weight.grad.abs().sum() > 0
    # Image by image, level by level, as the host lays out its boxes.
    score, labels = calls[0][:2]
    third = sum(x[0].numel() for x in outs[0][:2])
    expected = _joint_logits(outs[0][2], outs[2][2])[0, :, 1, 2]
    torch.testing.assert_close(score[third // 4 + 4 + 2], expected)
    assert labels.numel() == 2 * (16**2 + 8**2 + 4**2)


def test_yolox_keeps_the_class_of_a_box_beside_its_object():
    """Its own targets are IoU times one-hot, and the IoU may be 0."""
    head = build_covered('YOLOXHead', STABLE_AP)
    calls = watch(head.loss_cls.loss)
    for conv in head.multi_level_conv_reg:
        torch.nn.init.zeros_(conv.weight)
        conv.bias.data = torch.tensor([500.0, 500.0, 0.0, 0.0])
    features, truths, metas = covered_inputs('YOLOXHead')
    for truth in truths:
        truth.labels.fill_(2)
    head.loss_by_feat(*head(features), truths, metas)
    background = head.num_classes
    assert set(calls[0][1].tolist()) == {2, background}


def test_classes_in_the_place_of_names():
    """As pure-Python configs have them."""
    config = dict(
        HEADS['RetinaHead'],
        type=ListwiseHead,
        head_type=dense_heads.RetinaHead,
        num_classes=4,
        in_channels=8,
        loss_cls=dict(type=StableAPLoss),
    )
    # mmdet's assigner builds its parts under the default scope.
    with DefaultScope.overwrite_default_scope('mmdet'):
        by_class = MODELS.build(config)
    head = build_head('RetinaHead', STABLE_AP)
    assert type(by_class) is type(head)
    assert by_class.loss_cls.loss.rho == 'auto'
    assert by_class.loss_cls.loss.num_columns == 4
    # A pass that is interrupted leaves nothing behind.
    features, truths, metas = make_inputs()
    with pytest.raises(Exception, match='.*'):
        head.loss_by_feat(*head(features), truths[:1], metas)
    fresh = head_losses(build_head('RetinaHead', STABLE_AP))
    torch.testing.assert_close(head_losses(head)['loss_cls'], fresh['loss_cls'])
