"""Infinite scores, long embeddings, short lists: the loss and its gradient are numbers."""

from dataclasses import replace

import pytest
import torch
from random_batches import made_up
from registered_losses import CLASSES, cases

from mmrank.functional import dr_loss
from mmrank.losses import DRLoss, EmbeddingLoss, StableAPLoss

CASES = cases()


@pytest.mark.parametrize('case', [x for x in CASES if x.kind == 'rows'], ids=str)
@pytest.mark.parametrize('value', [torch.inf, -torch.inf])
def test_an_infinite_positive_makes_nothing_nan(case, value):
    batch = case.batch()
    scores, *boxes = (x.float() for x in batch.leaves)
    target = batch.fixed[-2]
    row = int((target < CLASSES).nonzero()[0])
    scores[row, target[row]] = value
    broken = replace(batch, leaves=(scores, *boxes))
    loss, gradients = broken.gradients(case.build())
    assert not loss.isnan()
    assert all(x.isfinite().all() for x in gradients)


@pytest.mark.parametrize('penalty', [0.0, 0.001])
def test_an_infinite_positive_of_stable_ap_is_finite(penalty):
    scores, labels = made_up(30), torch.arange(30) < 5
    scores[2] = -torch.inf
    value = StableAPLoss(score_penalty=penalty)(scores, labels)
    assert value.isfinite()


@pytest.mark.parametrize('case', [x for x in CASES if x.kind == 'queries'], ids=str)
def test_embeddings_whose_products_overflow(case):
    loss = case.build()
    rows, labels = 1e20 * made_up(8, 4), torch.arange(8) % CLASSES
    rows.requires_grad_()
    value = EmbeddingLoss(loss)(rows, labels)
    (slope,) = torch.autograd.grad(value, rows)
    assert value.isfinite()
    assert slope.isfinite().all()


def test_short_lists_leave_the_margin_alone():
    """One negative has no spread for tau='auto' to measure."""
    scores, index = made_up(400).double(), torch.arange(400)
    group = index // 20
    half = (index % 20 == 0) | (index >= 200)
    spreads = []
    for labels, rows in ((index % 20 == 0, slice(0, 200)), (half, slice(0, 400))):
        loss = StableAPLoss(tau='auto', score_penalty=0.0)
        loss(scores[rows], labels[rows], group=group[rows])
        spreads.append(loss.spread.mean)
    assert torch.equal(*spreads)
    pairs = StableAPLoss(tau='auto')
    pairs(scores, index % 2 == 0, group=index // 2)
    assert not pairs.spread.num_updates.any()
    assert pairs.diagnostics['tau'] == 1
    rows, labels = made_up(40, 8), torch.arange(40) // 4
    anchors = torch.arange(40)
    positives = anchors // 4 * 4 + (anchors + 1) % 4
    miner = anchors, positives, (anchors + 20) % 40
    of_cosines = EmbeddingLoss(StableAPLoss(tau='auto'))
    of_cosines(rows, labels, miner)
    torch.testing.assert_close(of_cosines.loss.diagnostics['tau'].item(), 0.3)


def test_a_group_of_weight_zero_adds_nothing_to_dr_loss():
    scores, labels, group = made_up(6), torch.tensor([1, 0, 0, 0, 0, 0]), torch.arange(6) // 3
    weight = (group == 0).float()
    value = DRLoss()(scores, labels, weight, group=group)
    torch.testing.assert_close(value, DRLoss()(scores[:3], labels[:3]))
    assert DRLoss()(scores, labels, 0 * weight) == 0
    assert dr_loss(scores, labels, mask=torch.zeros(6)) == 0
