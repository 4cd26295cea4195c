"""Blocks of scores give what all scores at once give."""

import pytest
import torch
from mmrank.functional.ranking import lists

from mmrank.functional import blackbox_ap_loss, distributional_ranking, listwise_ap_loss
from mmrank.losses.ranking.base import block_width, count_negatives

FUNCTIONS = (blackbox_ap_loss, distributional_ranking, listwise_ap_loss)


def value_and_gradients(function, scores, is_positive, mask, dtype):
    pos = scores[:, :4].clone().to(dtype).requires_grad_()
    neg = scores.clone().to(dtype).requires_grad_()
    losses = function(pos, neg, pos_mask=is_positive[:, :4], neg_mask=~is_positive & mask)
    weight = torch.tensor([0.3, 1.0, 2.0], dtype=losses.dtype)
    return losses, *torch.autograd.grad((losses * weight).sum(), (pos, neg))


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
@pytest.mark.parametrize('size', [1, 30, 57])
@pytest.mark.parametrize('function', FUNCTIONS, ids=lambda f: f.__name__)
def test_blocks_change_nothing(function, size, dtype, monkeypatch):
    g = torch.Generator().manual_seed(0)
    scores = torch.rand(3, 41, generator=g, dtype=torch.float64)
    is_positive = torch.zeros(3, 41, dtype=torch.bool)
    is_positive[:2, :4] = True
    mask = torch.rand(3, 41, generator=g) < 0.7
    args = scores, is_positive, mask, dtype
    whole = value_and_gradients(function, *args)
    assert whole[2].any()
    # One column, ten and nineteen in a block; the last is not full.
    monkeypatch.setattr(lists, 'SCORES_PER_BLOCK', size)
    assert block_width(3) == max(size // 3, 1)
    parts = value_and_gradients(function, *args)
    for one, other in zip(parts, whole):
        torch.testing.assert_close(one, other)


def test_counts_of_negatives(monkeypatch):
    g = torch.Generator().manual_seed(1)
    mask = torch.rand(3, 41, generator=g) < 0.3
    scores = torch.zeros(3, 41)
    monkeypatch.setattr(lists, 'SCORES_PER_BLOCK', 20)
    assert count_negatives(scores, mask).tolist() == mask.sum(1).tolist()
    nothing = count_negatives(scores[:, :0], mask[:, :0])
    assert nothing.tolist() == [0.0] * 3
    assert nothing.dtype == torch.float64
