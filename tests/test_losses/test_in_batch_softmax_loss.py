"""Softmax with the logQ correction against its definition."""

import pytest
import torch
from random_batches import assert_same_gradients, two_views

from mmrank.losses import InBatchSoftmaxLoss
from mmrank.losses.two_tower.in_batch_softmax import _in_batch_softmax_losses

ROWS = torch.tensor([0, 1, 2, 3, 4, 5])
COLS = torch.tensor([0, 1, 0, 2, 3, 1])


def loops(left, right, cols, log_share, tau):
    """Equations 4 and 5, without other pairs of the own right entity."""
    losses = []
    for p in range(len(left)):
        logits = []
        for q in range(len(right)):
            if q != p and cols[q] == cols[p]:
                continue
            logits.append(left[p] @ right[q] / tau - log_share[q])
        own = left[p] @ right[p] / tau - log_share[p]
        losses.append(-(own.exp() / torch.stack(logits).exp().sum()).log())
    return torch.stack(losses)


@pytest.mark.parametrize('tau', [1.0, 0.3])
@pytest.mark.parametrize('corrected', [True, False])
def test_equals_loops(tau, corrected):
    views = [x.requires_grad_() for x in two_views()]
    log_share = torch.tensor([0.9, 0.1, 0.9, 0.3, 0.02, 0.1]).double().log()
    zeros = torch.zeros_like(log_share)
    got = _in_batch_softmax_losses(*views, COLS, log_share if corrected else None, tau)
    want = loops(*views, COLS, log_share if corrected else zeros, tau)
    assert_same_gradients(got, want, views, rtol=1e-12, atol=1e-12)


def refined_loops(left, right, cols, share, tau):
    """The paper's loss: probability of the positive, weighted log-ratio; candidates behind."""
    losses = []
    for p in range(len(left)):
        others = [q for q in range(len(right)) if cols[q] != cols[p]]
        terms = torch.stack(
            [(left[p] @ right[q] / tau).exp() * (1 - share[p]) / share[q] for q in others]
        )
        own = (left[p] @ right[p] / tau).exp()
        probability = own / (own + terms.mean())
        losses.append((-probability.log(), (1 - probability).detach() * (terms.sum() / own).log()))
    return [torch.stack(x) for x in zip(*losses)]


@pytest.mark.parametrize('more', [0, 3])
def test_refined_has_the_gradient_of_the_paper(more):
    left, right = (x.requires_grad_() for x in (two_views()[0], two_views(6 + more, seed=1)[1]))
    cols = torch.cat([COLS, torch.tensor([4, 0, 4])[:more]])
    share = torch.tensor([0.4, 0.2, 0.3, 0.02, 0.08]).double()[cols]
    got = _in_batch_softmax_losses(left, right, cols, share.log(), 0.7, refined=True)
    value, weighted = refined_loops(left, right, cols, share, 0.7)
    torch.testing.assert_close(got, value, rtol=1e-12, atol=1e-12)
    slopes = torch.linspace(-1, 2, 6).double()
    torch.testing.assert_close(
        *(torch.autograd.grad((x * slopes).sum(), (left, right)) for x in (got, weighted)),
        rtol=1e-12,
        atol=1e-12,
    )


def test_counts_of_the_training_pairs():
    loss = InBatchSoftmaxLoss(tau=0.5, loss_weight=2.0)
    assert loss.wants_pair_counts
    with pytest.raises(RuntimeError, match='PairCountsHook'):
        loss(*two_views(), ROWS, COLS)
    loss.set_pairs(ROWS, COLS, (6, 4))
    share = torch.tensor([2, 2, 1, 1]).double() / 6
    expected = 2 * loops(*two_views(), COLS, share[COLS].log(), 0.5).mean()
    torch.testing.assert_close(loss(*two_views(), ROWS, COLS), expected)
    # Three uniform candidates behind the pairs: the shares are those of the mixture.
    left, right = two_views()[0], two_views(9, seed=1)[1]
    cols = torch.cat([COLS, torch.tensor([3, 0, 2])])
    mixed = (6 * share + 3 / 4) / 9
    for refined in (False, True):
        loss.refined = refined
        losses = _in_batch_softmax_losses(
            left, right, cols, mixed[cols].log(), 0.5, refined=refined
        )
        torch.testing.assert_close(loss(left, right, ROWS, cols), 2 * losses.mean())
    with pytest.raises(ValueError, match='cols holds indices from 9 to 9'):
        loss(*two_views(), ROWS, COLS * 0 + 9)
    with pytest.raises(ValueError, match='entities of the 6 pairs, .* or none, got 5'):
        loss(two_views()[0], two_views(5)[1], ROWS, COLS[:5])
    assert not InBatchSoftmaxLoss(frequency='none').wants_pair_counts
