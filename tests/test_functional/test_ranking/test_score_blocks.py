"""Blocks of scores give what all scores at once give."""

import pytest
import torch

from mmrank.functional import blackbox_ap_loss, dr_loss, listwise_ap_loss
from mmrank.losses import RankedLists
from mmrank.losses.pairs import tables

FUNCTIONS = (blackbox_ap_loss, dr_loss, listwise_ap_loss)


def value_and_gradients(function, scores, is_positive, mask, dtype):
    leaf = scores.clone().to(dtype).requires_grad_()
    if function is dr_loss:
        losses = function(leaf, torch.where(mask | is_positive, is_positive.int(), -1))
    else:
        losses = function(leaf, is_positive, mask=mask | is_positive)
    weight = torch.tensor([0.3, 1.0, 2.0], dtype=losses.dtype)
    return losses, *torch.autograd.grad((losses * weight).sum(), leaf)


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
    assert whole[1][:, 4:].any()
    # One column, ten and nineteen in a block; the last is not full.
    monkeypatch.setattr(tables, 'SCORES_PER_BLOCK', size)
    assert tables.block_width(3) == max(size // 3, 1)
    for one, other in zip(value_and_gradients(function, *args), whole):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize('lists', [1, 3])
def test_counts_of_negatives(lists):
    mask = torch.rand(lists, 41, generator=torch.Generator().manual_seed(1)) < 0.3
    for taken in (mask, mask[:, :0], mask.expand(lists, 41).repeat(1, 30_000)):
        number = RankedLists(None, None, None, None, taken).num_negatives()
        assert number.tolist() == taken.sum(1).tolist()
        assert number.dtype == torch.float64
