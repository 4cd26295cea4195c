"""The centre of the scores in the bias: stock heads show the same."""

import copy

import pytest
import torch

pytest.importorskip('mmdet')
from mmengine.registry import init_default_scope
from shown_boxes import (
    FOLDED,
    NOT_FOLDED,
    assert_same_boxes,
    build_spread,
    predict_covered,
    set_centre,
)
from small_heads import FOCAL, STABLE_AP, build_head, head_losses
from small_rcnn import detector_config

from centre_folding import fold_centres
from mmrank.losses import StableAPLoss
from mmrank.registry import MODELS

RANK_SORT = dict(type='mmrank.RankSortLoss')
SOPRC = dict(type='mmrank.SOPRCLoss', mode='per_class', score_range=(-20.0, 20.0))


CASES = [(name, dict(STABLE_AP, mode='per_class')) for name in FOLDED]
CASES = [case for case in CASES if 'RPN' not in case[0]]
CASES += [(name, STABLE_AP) for name in ('ATSSHead', 'GARPNHead', 'RPNHead')]
CASES += [('RetinaHead', dict(STABLE_AP, activation='sigmoid'))]
CASES += [(name, RANK_SORT) for name in ('RetinaHead', 'RTMDetHead')]
CASES += [('RetinaHead', SOPRC)]
CASES += [('FCOSHead', dict(type='mmrank.SumLoss', losses=[STABLE_AP] * 2))]


@pytest.mark.parametrize(('name', 'loss'), CASES)
def test_a_stock_head_shows_the_same(name, loss):
    head = build_spread(name, loss)
    set_centre(head.loss_cls.loss, 0.02 if 'activation' in loss else -4.0)
    expected = predict_covered(name, head)
    was = head.loss_cls.loss.logit_centre().clone()
    (centre,) = fold_centres(head)
    assert centre.folded
    assert centre.centre == tuple(was.tolist())
    assert head.loss_cls.loss.logit_centre().abs().max() < 1e-5
    assert_same_boxes(predict_covered(name, head), expected)
    stock = build_spread(name, FOCAL, listwise=False)
    missing = stock.load_state_dict(head.state_dict(), strict=False)
    assert not missing.missing_keys
    assert_same_boxes(predict_covered(name, stock), expected)
    # A second time changes nothing.
    state = copy.deepcopy(head.state_dict())
    fold_centres(head)
    for key, value in head.state_dict().items():
        assert torch.equal(value, state[key])


@pytest.mark.parametrize('name', NOT_FOLDED)
def test_where_it_is_impossible_nothing_changes(name):
    head = build_spread(name, STABLE_AP)
    set_centre(head.loss_cls.loss)
    state = copy.deepcopy(head.state_dict())
    (centre,) = fold_centres(head)
    assert not centre.folded
    assert NOT_FOLDED[name] in centre.reason
    for key, value in head.state_dict().items():
        assert torch.equal(value, state[key])


@pytest.mark.parametrize('loss', [STABLE_AP, RANK_SORT, SOPRC])
def test_training_goes_on_as_before(loss):
    """Loss, gradients and later centres, but for the constant."""
    if loss is STABLE_AP:  # its penalty alone knows where the scores are
        loss = dict(loss, score_penalty=0.0)
    heads = [build_head('RetinaHead', loss) for _ in range(2)]
    for head in heads:
        head_losses(head)  # sets the centre
    centre = heads[0].loss_cls.loss.logit_centre().clone()
    (folded,) = fold_centres(heads[1])
    assert folded.folded
    for _ in range(2):
        values = []
        for head in heads:
            head.zero_grad()
            value = head_losses(head)['loss_cls']
            value.backward()
            values.append((value, head.retina_cls.weight.grad))
        torch.testing.assert_close(values[1], values[0], rtol=1e-4, atol=1e-5)
    one, two = (head.loss_cls.loss.logit_centre() for head in heads)
    torch.testing.assert_close(two + centre, one, rtol=0, atol=1e-4)


class NoState(torch.nn.Module):
    """A loss of a user: a centre, and nothing that moves it."""

    def __init__(self):
        super().__init__()
        self.mean_positive = torch.nn.Module()
        self.mean_positive.register_buffer('mean', torch.tensor([-3.0]))

    def logit_centre(self):
        return self.mean_positive.mean


class Unmoved(StableAPLoss):
    """Its own centre, and a base that moves another."""

    def logit_centre(self):
        return torch.tensor([-3.0])


@pytest.mark.parametrize(
    ('loss', 'reason'),
    [
        (NoState, 'no shift_logits(), so the centre would be applied twice'),
        (Unmoved, 'shift_logits() leaves a centre of 3 instead of 0'),
    ],
)
def test_a_loss_that_cannot_move_is_left_alone(loss, reason):
    head = build_head('RetinaHead', STABLE_AP)
    head.loss_cls.loss = loss()
    state = copy.deepcopy(head.state_dict())
    (centre,) = fold_centres(head)
    assert not centre.folded
    assert reason in centre.reason
    for key, value in head.state_dict().items():
        torch.testing.assert_close(value, state[key])


def test_a_head_of_other_features_is_left_alone(monkeypatch):
    head = build_head('RetinaHead', STABLE_AP)
    set_centre(head.loss_cls.loss)
    bias = head.retina_cls.bias.clone()

    def forward(features, calls=[]):  # noqa: B006  counts over all calls
        calls.append(1)
        if len(calls) > 2:
            raise ValueError('no such level')
        return type(head).forward(head, features)

    monkeypatch.setattr(head, 'forward', forward)
    (centre,) = fold_centres(head)
    assert 'random features: ValueError: no such level' in centre.reason
    assert torch.equal(head.retina_cls.bias, bias)
    assert head.training


def test_heads_that_show_raw_scores():
    head = build_head('RetinaHead', STABLE_AP, centre_scores=False)
    set_centre(head.loss_cls.loss)
    assert fold_centres(head) == []
    head = build_head('RetinaHead', dict(type='mmrank.SmoothAPLoss', tau=1.0))
    (centre,) = fold_centres(head)
    assert (centre.folded, centre.centre) == (False, ())
    assert 'needs its own score_thr' in centre.reason


def test_the_heads_of_both_stages_are_folded():
    init_default_scope('mmdet')
    model = MODELS.build(detector_config(bbox_head=dict(loss_cls=STABLE_AP)))
    set_centre(model)
    found = [(one.head, one.folded) for one in fold_centres(model)]
    assert found == [('rpn_head', True), ('roi_head.bbox_head', True)]
