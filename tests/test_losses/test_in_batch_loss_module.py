"""The registered in-batch loss equals that of the matrix of scores, also on two ranks."""

import pytest
import torch
from gloo_processes import run_on_ranks
from in_batch_enumeration import in_batch_loss
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.functional import Pointwise
from mmrank.losses import InBatchLoss
from mmrank.losses.two_tower import sums
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES

SHAPE = (6, 5)


def training_pairs():
    g = torch.Generator().manual_seed(3)
    labels = torch.rand(SHAPE, generator=g) < 0.4
    labels[torch.arange(6), torch.arange(6) % 5] = True
    return labels.nonzero().unbind(1)


class _Model(nn.Module):
    """Two tables of embeddings and a loss."""

    def __init__(self, mode='unbiased', pointwise='square', **other):
        super().__init__()
        g = torch.Generator().manual_seed(4)
        self.left, self.right = (
            nn.Parameter(torch.randn(n, 3, generator=g, dtype=torch.float64)) for n in SHAPE
        )
        if mode.endswith('_omega'):
            other['omega'] = 0.3
        self.loss = InBatchLoss(mode, pointwise, **other)
        self.loss.set_pairs(*training_pairs(), SHAPE)

    def forward(self, rows, cols):
        return self.loss(self.left[rows], self.right[cols], rows, cols)


def batch():
    rows, cols = training_pairs()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    return rows[order[:7]], cols[order[:7]]


def value_and_gradients(model, loss):
    gradients = torch.autograd.grad(loss, [model.left, model.right])
    return [loss.detach(), *gradients]


class SquaredHinge(Pointwise):
    def positive(self, scores):
        return (1 - scores).clamp(min=0).square()

    def negative(self, scores):
        return (1 + scores).clamp(min=0).square()

    def negative_slope(self, scores):
        return 2 * (1 + scores).clamp(min=0)


@pytest.mark.parametrize('block_size', [1, 3])
@pytest.mark.parametrize('pointwise', ['square', 'logistic', SquaredHinge()])
@pytest.mark.parametrize('mode', IN_BATCH_MODES)
def test_equals_the_matrix_of_scores(monkeypatch, mode, pointwise, block_size):
    """Of one embedding a pair, and of one an entity with the indices of the pairs."""
    monkeypatch.setattr(sums, 'BLOCK_SIZE', block_size)
    model = _Model(mode, pointwise, loss_weight=2.0)
    rows, cols = batch()
    if mode == 'sogram':
        rows = rows[:4]
    counts = model.loss.counts
    expected = in_batch_loss(
        model.left[rows] @ model.right[cols].t(),
        *(rows, cols, counts.row_counts, counts.col_counts, mode),
        pointwise=pointwise,
        omega=model.loss.omega,
    )
    expected = value_and_gradients(model, 2 * expected)
    for loss in (model(rows, cols), model.loss(model.left, model.right, rows, cols, rows, cols)):
        found = value_and_gradients(model, loss)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def _two_samples(rank):
    """Pairs of one rank of both samples: 4 in the first, 3 in the second."""
    rows, cols = batch()
    first, second = ([0], [4]) if rank == 0 else ([1, 2, 3], [5, 6])
    return rows[first], cols[first + second]


def _on_rank(rank):
    rows, cols = batch()
    for mode, own_cols in (('unbiased', cols[:3]), ('sogram', cols[:4])):
        with pytest.raises(ValueError, match='in the batch of all ranks'):
            _Model(mode)(rows[:3], own_cols)
    # Together the ranks have more of a column than there is.
    rows, cols = training_pairs()
    count, col = torch.bincount(cols).min(0)
    own = rows[[rank]], torch.cat([cols[[rank]], col.repeat(int(count))])
    with pytest.raises(ValueError, match='second sample of all ranks'):
        _Model('sogram')(*own)
    results = []
    for pointwise in ('square', 'logistic'):
        model = _Model('sogram', pointwise, loss_weight=1.5)
        wrapped = DistributedDataParallel(model)
        loss = wrapped(*_two_samples(rank))
        loss.backward()
        results += [loss, model.left.grad, model.right.grad]
    return results


@pytest.mark.processes
def test_two_samples_on_two_ranks_equal_one_process():
    """The other modes: test_registered_losses_distributed.py."""
    rows, cols = batch()
    expected = []
    for pointwise in ('square', 'logistic'):
        model = _Model('sogram', pointwise, loss_weight=1.5)
        expected += value_and_gradients(model, model(rows[:4], cols))
    for found in run_on_ranks(_on_rank, 2):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
