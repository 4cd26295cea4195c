"""The registered rivals of stable AP under their common interface."""

import pytest
import torch
from random_batches import rows_with_background
from torch import nn

from mmrank.functional import alrp_loss, ap_loss, dr_loss, rank_sort_loss
from mmrank.losses import RankingLoss
from mmrank.registry import MODELS
from mmrank.state import SelfBalance

CLASSES = 3
NAMES = ['APLoss', 'ALRPLoss', 'RankSortLoss', 'DRLoss']


def build(name, **kwargs):
    if name == 'APLoss':  # the paper's
        kwargs.setdefault('quality', 0)
    return MODELS.build(dict(type=f'mmrank.{name}', **kwargs))


def batch(n=60, seed=0):
    """Logits, targets (the last class index = background), box numbers."""
    logits, target = rows_with_background(n, CLASSES, seed)
    g = torch.Generator().manual_seed(seed)
    boxes = torch.rand(int((target < CLASSES).sum()), generator=g, dtype=torch.float64)
    return logits, target, boxes


def box_arguments(loss, boxes):
    key = {'quality': 'quality', 'loss': 'box_loss'}.get(loss.box_input)
    return {key: boxes} if key else {}


def total(loss, logits, target, boxes, weight=None):
    losses = loss(logits, target, weight, **box_arguments(loss, boxes))
    return sum(losses.values()) if isinstance(losses, dict) else losses


def as_lists(logits, target, boxes):
    """One-vs-all labels and the boxes of the positives, flattened."""
    labels = nn.functional.one_hot(target, CLASSES + 1)[:, :CLASSES].double()
    values = torch.zeros(target.shape, dtype=torch.float64)
    values[target < CLASSES] = boxes
    return labels, labels * values[:, None]


def by_function(name, logits, labels, values):
    """The loss of one list from ``mmrank.functional``."""
    if name == 'APLoss':
        return ap_loss(logits, labels)
    if name == 'DRLoss':
        return dr_loss(logits, labels)
    if name == 'RankSortLoss':
        return sum(rank_sort_loss(logits, values))
    scores, boxes = alrp_loss(logits, labels, values)
    return scores + 50 * boxes


@pytest.mark.parametrize('name', NAMES)
def test_flatten_is_one_list_of_all_classes(name):
    logits, target, boxes = batch()
    labels, values = as_lists(logits, target, boxes)
    got = total(build(name), logits, target, boxes)
    flat = (x.flatten() for x in (logits, labels, values))
    torch.testing.assert_close(got, by_function(name, *flat))


@pytest.mark.parametrize('name', ['APLoss', 'ALRPLoss', 'RankSortLoss'])
def test_error_driven_losses_know_where_the_positives_are(name):
    logits, target, boxes = batch()
    loss = build(name)
    total(loss, logits, target, boxes)
    rows = torch.arange(60)[target < CLASSES]
    mean = logits[rows, target[rows]].mean()
    torch.testing.assert_close(loss.logit_centre()[0].double(), mean)


def test_alrp_trains_the_boxes_by_their_rank():
    logits, target, boxes = batch()
    boxes.requires_grad_()
    losses = build('ALRPLoss')(logits, target, box_loss=boxes)
    losses['loss_bbox'].backward()
    labels, other = (x.flatten() for x in as_lists(logits, target, boxes.detach()))
    other.requires_grad_()
    (50 * alrp_loss(logits.flatten(), labels, other)[1]).backward()
    torch.testing.assert_close(boxes.grad, other.grad[labels > 0])
    assert (boxes.grad > 0).all()


def test_sorting_can_be_weighted():
    logits, target, boxes = batch()
    values = [
        build('RankSortLoss', sort_weight=w)(logits, target, quality=boxes) for w in (0.0, 1.0, 3.0)
    ]
    torch.testing.assert_close(values[2] - values[0], 3 * (values[1] - values[0]))
    assert values[1] > values[0]


class TestSelfBalance:
    def test_ratio_of_the_period_before(self):
        state = SelfBalance(period=2)
        pairs = [(0.8, 0.1), (0.6, 0.3), (1.0, 1.0), (3.0, 1.0), (0.0, 1.0)]
        got = [float(state.update(torch.tensor(c), torch.tensor(b))) for c, b in pairs]
        first, second = (0.8 + 0.6 + 0.4) / 0.4, (4.0 + 2.0) / 2.0
        assert got == pytest.approx([50, 50, first, first, second])

    def test_no_boxes_and_bad_numbers_do_not_count(self):
        state = SelfBalance(period=1)
        one, zero = torch.tensor(1.0), torch.tensor(0.0)
        state.update(one, zero)
        state.update(torch.tensor(float('nan')), one)
        assert state.ratio == 50
        state.update(one, one)
        assert state.ratio == 2


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float64])
def test_values_of_boxes_take_the_dtype_of_the_scores(dtype):
    """Ranks gather them: one without boxes must not differ in the dtype."""

    class Seen(RankingLoss):
        box_input = 'quality'

        def list_losses(self, lists):
            self.dtype = lists.values.dtype
            return lists.scores.sum()

    logits, target, boxes = batch()
    loss = Seen()
    loss(logits.float(), target, quality=boxes.to(dtype))
    assert loss.dtype == torch.float32
