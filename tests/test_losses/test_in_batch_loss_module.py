"""The registered in-batch loss, also over two processes."""

import pytest
import torch
from gloo_processes import run_on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.functional import in_batch_loss
from mmrank.losses import InBatchLoss
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES
from mmrank.registry import MODELS

SHAPE = (6, 5)


def training_pairs():
    g = torch.Generator().manual_seed(3)
    labels = torch.rand(SHAPE, generator=g) < 0.4
    labels[torch.arange(6), torch.arange(6) % 5] = True
    return labels.nonzero().unbind(1)


def build(mode='unbiased', pointwise='square', **other):
    if mode.endswith('_omega'):
        other['omega'] = 0.3
    loss = InBatchLoss(mode, pointwise, **other)
    loss.set_pairs(*training_pairs(), SHAPE)
    return loss


class _Model(nn.Module):
    """Two tables of embeddings and a loss."""

    def __init__(self, *args, **kwargs):
        super().__init__()
        g = torch.Generator().manual_seed(4)
        self.left, self.right = (
            nn.Parameter(torch.randn(n, 3, generator=g, dtype=torch.float64)) for n in SHAPE
        )
        self.loss = build(*args, **kwargs)

    def forward(self, rows, cols):
        return self.loss(self.left[rows], self.right[cols], rows, cols)


def batch():
    rows, cols = training_pairs()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    return rows[order[:7]], cols[order[:7]]


#: Pairs of each rank; with three ranks one has none.
PARTS = {2: [slice(0, 5), slice(5, 7)], 3: [slice(0, 4), slice(0, 0), slice(4, 7)]}


def _sogram_part(part, rows, cols):
    """Pairs of one rank of both samples: 4 in the first, 3 in the second."""
    first, second = range(4)[part], range(4, 7)[part]
    rows = rows[list(first)]
    return rows, cols[list(first) + list(second)]


SOGRAM_PARTS = [slice(0, 1), slice(1, None)]


def _gradients(model, loss):
    loss.backward()
    return [loss, model.left.grad, model.right.grad]


def _on_rank(rank, world):
    rows, cols = batch()
    results = []
    for mode in IN_BATCH_MODES:
        for pointwise in ('square', 'logistic'):
            model = _Model(mode, pointwise, block_size=2, loss_weight=1.5)
            wrapped = DistributedDataParallel(model)
            if mode == 'sogram' and world == 3:
                continue
            if mode == 'sogram':
                own = _sogram_part(SOGRAM_PARTS[rank], rows, cols)
            else:
                part = PARTS[world][rank]
                own = rows[part], cols[part]
            results += _gradients(model, wrapped(*own))
    return results


def _alone(world):
    rows, cols = batch()
    results = []
    for mode in IN_BATCH_MODES:
        for pointwise in ('square', 'logistic'):
            if mode == 'sogram' and world == 3:
                continue
            model = _Model(mode, pointwise, loss_weight=1.5)
            own = rows, cols
            if mode == 'sogram':
                own = rows[:4], cols
            results += _gradients(model, model(*own))
    return results


def _local_on_rank(rank):
    rows, cols = batch()
    model = _Model(scope='local')
    part = PARTS[2][rank]
    wrapped = DistributedDataParallel(model)
    return _gradients(model, wrapped(rows[part], cols[part]))


def _repeat_on_rank():
    """The same pairs on every rank."""
    rows, cols = batch()
    with pytest.raises(ValueError, match='in the batch of all ranks'):
        _Model()(rows[:3], cols[:3])
    with pytest.raises(ValueError, match='in the batch of all ranks'):
        _Model('sogram')(rows[:3], cols[:4])


def _repeat_second_sample_on_rank(rank):
    """Together the ranks have more of a column than there is."""
    rows, cols = training_pairs()
    count, col = torch.bincount(cols).min(0)
    own = rows[[rank]], torch.cat([cols[[rank]], col.repeat(int(count))])
    with pytest.raises(ValueError, match='second sample of all ranks'):
        _Model('sogram')(*own)


def _two_ranks(rank):
    _repeat_on_rank()
    _repeat_second_sample_on_rank(rank)
    return [*_local_on_rank(rank), *_on_rank(rank, 2)]


def _assert_close(actual, expected):
    for x, y in zip(actual, expected, strict=True):
        torch.testing.assert_close(x, y.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.processes
def test_two_ranks_equal_one_process():
    # One start of the processes for all cases: it costs most of the time.
    rows, cols = batch()
    model = _Model()
    loss = sum(model(rows[p], cols[p]) for p in PARTS[2]) / 2
    _, *local = _gradients(model, loss)
    expected = _alone(2)
    for results in run_on_ranks(_two_ranks, 2):
        _assert_close(results[1:3], local)
        _assert_close(results[3:], expected)


@pytest.mark.slow
def test_three_ranks_one_without_pairs():
    expected = _alone(3)
    for results in run_on_ranks(_on_rank, 3, 3):
        _assert_close(results, expected)


@pytest.mark.parametrize('pointwise', ['square', 'logistic'])
@pytest.mark.parametrize('mode', IN_BATCH_MODES)
def test_equals_the_function(mode, pointwise):
    model = _Model(mode, pointwise, loss_weight=2.0)
    rows, cols = batch()
    counts = model.loss.counts
    expected = in_batch_loss(
        model.left[rows] @ model.right[cols].t(),
        rows,
        cols,
        counts.row_counts,
        counts.col_counts,
        counts.num_positives,
        mode=mode,
        pointwise=pointwise,
        omega=0.3,
        shape=SHAPE,
    )
    torch.testing.assert_close(model(rows, cols), 2 * expected)


def test_built_from_a_config():
    loss = MODELS.build(dict(type='mmrank.InBatchLoss', mode='sogram'))
    assert isinstance(loss, InBatchLoss)
    with pytest.raises(RuntimeError, match='set_pairs'):
        loss(torch.eye(2), torch.eye(2), *[torch.arange(2)] * 2)
