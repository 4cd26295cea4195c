"""Heads whose centre is in no bias; test_to_stock.py folds those of all others."""

import pytest
import torch

pytest.importorskip('mmdet')
from shown_boxes import set_centre
from small_heads import STABLE_AP, build_head

from centre_folding import fold_centres


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
