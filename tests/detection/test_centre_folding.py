"""The centre of the scores in the bias: stock heads show the same."""

import copy

import pytest
import torch

pytest.importorskip('mmdet')
from mmengine.registry import init_default_scope
from shown_boxes import NOT_FOLDED, assert_same_boxes, build_spread, predict_covered, set_centre
from small_heads import FOCAL, STABLE_AP, build_head
from small_rcnn import detector_config

from centre_folding import fold_centres
from mmrank.registry import MODELS

RANK_SORT = dict(type='mmrank.RankSortLoss')
SOPRC = dict(type='mmrank.SOPRCLoss', mode='per_class', score_range=(-20.0, 20.0))


#: With a centre for each class: test_to_stock.py.
CASES = [('ATSSHead', STABLE_AP)]
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
    stock = build_spread(name, FOCAL, listwise=False)
    missing = stock.load_state_dict(head.state_dict(), strict=False)
    assert not missing.missing_keys
    assert_same_boxes(predict_covered(name, stock), expected)


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
    # The heads of both stages are folded.
    init_default_scope('mmdet')
    model = MODELS.build(detector_config(bbox_head=dict(loss_cls=STABLE_AP)))
    set_centre(model)
    found = [(one.head, one.folded) for one in fold_centres(model)]
    assert found == [('rpn_head', True), ('roi_head.bbox_head', True)]
