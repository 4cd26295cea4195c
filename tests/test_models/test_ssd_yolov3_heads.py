"""SSD and YOLOv3 on ranking losses: heads that compute losses of their own."""

import pytest
import torch

pytest.importorskip('mmdet')
from covered_heads import ADAPTED_HEADS, BINARY, build_covered
from mmengine.config import ConfigDict
from small_heads import (
    CLASSES,
    GIOU,
    OMIT,
    STABLE_AP,
    STRIDES,
    TEST_CFG,
    head_losses,
    make_inputs,
    objective,
    summed,
    watch,
)

from lib.centre_folding import fold_centres
from mmrank.models.dense_heads.adapted_hosts import joint_logits

SHOW_ALL = ConfigDict(TEST_CFG, score_thr=0.0, nms_pre=100_000)


def build(name, loss=STABLE_AP, **kwargs):
    head = build_covered(name, loss, **kwargs)
    if name == 'YOLOV3Head':
        with torch.no_grad():  # scores that differ by more than rounding
            for weight in head.parameters():
                if weight.dim() > 1:
                    weight.mul_(3)
    return head


def predict(head):
    """All boxes, before duplicates are removed."""
    features, _, metas = make_inputs()
    head.eval()
    with torch.no_grad():
        return head.predict_by_feat(*head(features), batch_img_metas=metas, with_nms=False)


@pytest.mark.parametrize('name', ADAPTED_HEADS)
def test_head_trains(name):
    head = build(name)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-3)
    for _ in range(2):
        calls = watch(head.loss_cls.loss)
        losses = head_losses(head)
        assert losses['loss_cls'] > 0
        optimizer.zero_grad()
        objective(losses).backward()
        for key, parameter in head.named_parameters():
            assert parameter.grad.isfinite().all()
            # A level may have no positive, and then no box to move.
            if 'reg' not in key:
                assert parameter.grad.abs().sum() > 0
        optimizer.step()
    ((scores, labels, *_),) = calls[:1]
    assert scores.shape == (len(labels), CLASSES)
    assert (labels < CLASSES).sum() >= 3


@pytest.mark.parametrize('name', ADAPTED_HEADS)
def test_batch_without_objects(name):
    head = build(name)
    losses = head_losses(head, boxes=False)
    assert losses['loss_cls'] == 0
    objective(losses).backward()
    for parameter in head.parameters():
        assert parameter.grad.isfinite().all()
    assert all(len(r.scores) == len(r.bboxes) for r in predict(head))


@pytest.mark.parametrize('name', ADAPTED_HEADS)
def test_mean_positive_is_shown_as_one_half(name):
    def highest(centre):
        head = build(name, centre_scores=centre, test_cfg=SHOW_ALL)
        head.loss_cls.loss.mean_positive.mean.fill_(-4.0)
        return torch.cat([r.scores for r in predict(head)]).max()

    centred, plain = highest(True), highest(False)
    torch.testing.assert_close(centred.logit(), plain.logit() + 4, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('name', ADAPTED_HEADS)
def test_centre_stays_beside_the_weights(name):
    """No stock head shows these scores."""
    head = build(name)
    head_losses(head)
    (centre,) = fold_centres(head)
    assert not centre.folded
    reasons = dict(SSDHead='softmax over C + 1', YOLOV3Head='the product of')
    assert reasons[name] in centre.reason


def test_ssd_keeps_its_boxes_and_drops_the_background():
    head = build('SSDHead')
    stock = build('SSDHead', OMIT, listwise=False)
    stock.reg_convs.load_state_dict(head.reg_convs.state_dict())
    calls, losses = watch(head.loss_cls.loss), head_losses(head)
    ((scores, labels, weights, _),) = calls
    # One box loss for each image.
    torch.testing.assert_close(list(losses['loss_bbox']), list(head_losses(stock)['loss_bbox']))
    cells = sum((128 // s) ** 2 * n for s, n in zip(STRIDES, (4, 6, 4)))
    assert scores.shape == (2 * cells, CLASSES)
    # All anchors are ranked, of which three images' objects are positives.
    assert (weights == 1).all()
    assert set(labels[labels < CLASSES].tolist()) == {0, 1}


@pytest.mark.parametrize('loss', ['RankSortLoss', 'ALRPLoss'])
def test_ssd_on_losses_with_boxes(loss):
    config = dict(type=f'mmrank.{loss}')
    head = build('SSDHead', config, reg_decoded_bbox=True, loss_bbox=GIOU)
    calls, losses = watch(head.loss_cls.loss), head_losses(head)
    ((*_, labels, _, told),) = calls
    (values,) = [x for key, x in told.items() if key != 'avg_factor']
    assert values.shape == ((labels < CLASSES).sum(),)
    assert values.max() > 0
    objective(losses).backward()
    slopes = [conv[-1].weight.grad.abs().sum() for conv in head.reg_convs]
    assert sum(slopes) > 0
    empty = head_losses(head, boxes=False)
    assert summed(empty['loss_bbox']) == 0


def test_yolov3_ranks_the_product_that_it_shows():
    """All anchors but those that YOLOv3 leaves out; boxes as before."""
    head = build('YOLOV3Head')
    stock = build('YOLOV3Head', BINARY, listwise=False)
    stock.load_state_dict({k: v for k, v in head.state_dict().items() if 'loss_cls' not in k})
    calls, losses = watch(head.loss_cls.loss), head_losses(head)
    assigned = []
    get_targets = stock.get_targets
    stock.get_targets = lambda *args: assigned.extend(get_targets(*args)) or tuple(assigned)
    expected = head_losses(stock)
    assert set(losses) == {'loss_cls', 'loss_xy', 'loss_wh'}
    for key in ('loss_xy', 'loss_wh'):
        torch.testing.assert_close(list(losses[key]), list(expected[key]))
    ((scores, labels, weights, _),) = calls
    (maps,) = head(make_inputs()[0])
    # Level by level, image by image, place by place, anchor by anchor.
    level, image, y, x, anchor = 0, 1, 5, 6, 1
    of_anchor = maps[level][image, anchor * 9 : anchor * 9 + 9, y, x]
    row = ((image * 16 + y) * 16 + x) * 2 + anchor
    torch.testing.assert_close(scores[row], joint_logits(of_anchor[5:], of_anchor[4:5]))
    targets, negatives = (
        torch.cat([level.flatten(0, 1) for level in levels]) for levels in assigned
    )
    matched = targets[:, 4] == 1
    assert matched.sum() >= 3
    assert torch.equal(labels < CLASSES, matched)
    one_hot = torch.nn.functional.one_hot(labels[matched], CLASSES)
    assert torch.equal(one_hot.float(), targets[matched, 5:])
    assert torch.equal(weights > 0, matched | (negatives > 0))
    assert (weights == 0).any()


def _rows(result):
    """Label and box of each row; labels further apart than boxes."""
    return torch.cat([1e3 * result.labels[:, None], result.bboxes], 1)


def test_yolov3_shows_the_scores_of_the_stock_head():
    head = build('YOLOV3Head', test_cfg=SHOW_ALL, centre_scores=False)
    stock = build('YOLOV3Head', BINARY, listwise=False, test_cfg=SHOW_ALL)
    for ours, theirs in zip(predict(head), predict(stock)):
        # The rows come in another order: sorted by product, or by class.
        distance, index = torch.cdist(
            _rows(ours), _rows(theirs), compute_mode='donot_use_mm_for_euclid_dist'
        ).min(1)
        assert distance.max() < 1e-2
        assert len(index.unique()) == len(index) == len(theirs)
        # An error of the logit, near -11, is a relative one of the score.
        torch.testing.assert_close(ours.scores, theirs.scores[index], rtol=1e-5, atol=0)


def test_yolov3_balances_its_two_box_losses():
    losses = head_losses(build('YOLOV3Head', balance_boxes=True))
    boxes = summed(losses['loss_xy']) + summed(losses['loss_wh'])
    torch.testing.assert_close(boxes, losses['loss_cls'])
