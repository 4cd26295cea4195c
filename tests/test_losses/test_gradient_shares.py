"""``balance_gradients`` of a sum: its weights are shares of the gradient."""

import copy

import pytest
import torch
from gloo_processes import run_on_ranks
from torch.utils.checkpoint import checkpoint

from mmrank.errors import UserError
from mmrank.losses import AUCLoss, EmbeddingLoss, PMLLoss, SmoothAPLoss, StableAPLoss, SumLoss

WEIGHTS = [0.9, 0.3]


def _embedding_sum(scale=1.0, weights=WEIGHTS, **kwargs):
    contrastive = PMLLoss(dict(type='NTXentLoss', temperature=0.1))
    parts = [StableAPLoss(loss_weight=scale), contrastive]
    return EmbeddingLoss(SumLoss(parts, weights, **kwargs)).double()


def _embeddings(step=0):
    g = torch.Generator().manual_seed(step)
    rows = torch.randn(24, 6, generator=g, dtype=torch.float64)
    return rows.requires_grad_(), torch.arange(24) % 6


def _size(value, leaf):
    return torch.autograd.grad(value, leaf, retain_graph=True)[0].norm()


def _unit(embeddings):
    return torch.nn.functional.normalize(embeddings).detach().requires_grad_()


def test_the_gradients_are_to_each_other_as_the_weights():
    """By hand, from the two losses alone, on the first batch."""
    total = _embedding_sum(balance_gradients=True)
    alone = [EmbeddingLoss(copy.deepcopy(x)) for x in total.loss.losses]
    embeddings, labels = _embeddings()
    unit = _unit(embeddings)
    values = [loss(unit, labels) for loss in alone]
    sizes = [_size(value, unit) for value in values]
    factor = sizes[0] / sizes[1]
    expected = WEIGHTS[0] * values[0] + WEIGHTS[1] * factor * values[1]
    torch.testing.assert_close(total(unit, labels), expected, rtol=1e-6, atol=0)
    noted = total.loss.diagnostics
    torch.testing.assert_close(noted['factor_1'].double(), factor, rtol=1e-6, atol=0)
    plain = torch.stack([weight * size for weight, size in zip(WEIGHTS, sizes)])
    shares = torch.stack([noted['share_0'], noted['share_1']]).double()
    torch.testing.assert_close(shares, plain / plain.sum(), rtol=1e-6, atol=0)
    assert list(noted) == ['part_0', 'part_1', 'share_0', 'share_1', 'factor_1']


def test_the_scale_of_a_part_changes_nothing():
    values = []
    for scale in (1.0, 1000.0):
        total = _embedding_sum(scale, balance_gradients=True)
        found = [total(*_embeddings(step)) for step in range(4)]
        values.append(torch.stack(found) / scale)
    torch.testing.assert_close(*values, rtol=1e-6, atol=0)


def test_scores_of_classes():
    parts = [SmoothAPLoss(tau=1.0), AUCLoss(tau=1.0), AUCLoss(tau=0.1)]
    total = SumLoss(copy.deepcopy(parts), [1.0, 2.0, 0.5], balance_gradients=True)
    scores = torch.randn(30, generator=torch.Generator().manual_seed(0)).double()
    scores.requires_grad_()
    target = torch.arange(30) % 3 == 0
    values = [part(scores, target.long()) for part in parts]
    sizes = [_size(value, scores) for value in values]
    expected = values[0] + 2 * values[1] * sizes[0] / sizes[1]
    expected = expected + 0.5 * values[2] * sizes[0] / sizes[2]
    torch.testing.assert_close(total(scores, target.long()), expected, rtol=1e-6, atol=0)


def test_resumed_bit_for_bit_and_still_in_validation():
    whole = _embedding_sum(balance_gradients=True)
    for step in range(3):
        whole(*_embeddings(step))
    resumed = _embedding_sum(balance_gradients=True)
    resumed.load_state_dict(whole.state_dict())
    before = copy.deepcopy(whole.state_dict())
    whole.eval()
    with torch.no_grad():
        whole(*_embeddings(9))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, before[name])
    whole.train()
    for step in range(3, 6):
        assert torch.equal(whole(*_embeddings(step)), resumed(*_embeddings(step)))


def _steps(rank, world_size):
    parts = [StableAPLoss(), AUCLoss(tau=0.1)]
    total = EmbeddingLoss(SumLoss(parts, WEIGHTS, balance_gradients=True)).double()
    found = []
    for step in range(2):
        rows, labels = _embeddings(step)
        # Uneven ranks.
        bounds = [0, 9, 24] if world_size == 2 else [0, 24]
        own = slice(bounds[rank], bounds[rank + 1])
        leaf = rows.detach()[own].requires_grad_()
        total(leaf, labels[own])
        found.append(total.loss.diagnostics['factor_1'])
        found.append(total.loss.diagnostics['share_0'])
    return torch.stack(found)


@pytest.mark.processes
def test_two_ranks_are_one_process():
    alone = _steps(0, 1)
    for found in run_on_ranks(_steps, 2, 2):
        torch.testing.assert_close(found, alone, rtol=1e-6, atol=0)


@pytest.mark.parametrize('reentrant', [True, False])
def test_a_checkpointed_loss_is_refused(reentrant):
    """Its gradients cannot be measured: no graph at first, no state when it runs again."""
    total = _embedding_sum(balance_gradients=True)
    with pytest.raises(UserError, match='Fix: call the loss outside of it'):
        checkpoint(total, *_embeddings(), use_reentrant=reentrant).backward()
