"""The in-batch losses by their equations, on two ranks, and softmax with the logQ correction."""

import pytest
import torch
from gloo_processes import run_on_ranks
from in_batch_enumeration import (
    COL_COUNTS,
    NUM_POSITIVES,
    OMEGA,
    PAIRS,
    ROW_COUNTS,
    SHAPE,
    batch_loss,
    batches,
    in_batch_loss,
    indices,
)
from subjects import two_views
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.functional import Pointwise
from mmrank.losses import InBatchLoss, InBatchSoftmaxLoss
from mmrank.losses.contrastive.terms import Samples
from mmrank.losses.two_tower import sums
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES
from mmrank.losses.two_tower.in_batch_softmax import _in_batch_softmax_losses
from mmrank.losses.two_tower.pointwise import build_pointwise


class _Model(nn.Module):
    """Two tables of embeddings and a loss."""

    def __init__(self, mode='unbiased', pointwise='square', **other):
        super().__init__()
        g = torch.Generator().manual_seed(4)
        self.left, self.right = (
            nn.Parameter(torch.randn(n, 3, generator=g, dtype=torch.float64)) for n in SHAPE
        )
        if mode.endswith('_omega'):
            other['omega'] = OMEGA
        self.loss = InBatchLoss(mode, pointwise, **other)
        self.loss.set_pairs(*indices(PAIRS), SHAPE)

    def forward(self, rows, cols):
        return self.loss(self.left[rows], self.right[cols], rows, cols)


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


@pytest.mark.parametrize('pointwise', ['square', 'logistic', SquaredHinge()])
@pytest.mark.parametrize('mode', IN_BATCH_MODES)
def test_equals_the_printed_definition(monkeypatch, mode, pointwise):
    """Of one embedding a pair, and of one an entity with the indices of the pairs."""
    monkeypatch.setattr(sums, 'BLOCK_SIZE', 3)
    monkeypatch.setattr(sums, 'BLOCK_PAIRS', 3)
    model = _Model(mode, pointwise, loss_weight=2.0)
    for size in range(2, NUM_POSITIVES + 1):
        first = max(size - 2, 1) if mode == 'sogram' else size
        for batch in batches(size)[::3]:
            rows, cols = indices(batch)
            rows = rows[:first]
            scores = model.left @ model.right.t()
            expected = batch_loss(scores, batch[:first], mode, pointwise, batch[first:])
            expected = value_and_gradients(model, 2 * expected)
            of_pairs = model(rows, cols)
            of_entities = model.loss(model.left, model.right, rows, cols, rows, cols)
            for loss in (of_pairs, of_entities):
                found = value_and_gradients(model, loss)
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def _two_samples(rank):
    """Pairs of one rank of both samples: 4 in the first, 2 in the second."""
    rows, cols = indices(PAIRS)
    first, second = ([0], [4]) if rank == 0 else ([1, 2, 3], [5])
    return rows[first], cols[first + second]


def _on_rank(rank):
    rows, cols = indices(PAIRS)
    for mode, own_cols in (('unbiased', cols[:3]), ('sogram', cols[:4])):
        with pytest.raises(ValueError, match='in the batch of all ranks'):
            _Model(mode)(rows[:3], own_cols)
    # Together the ranks have more of a column than there is.
    count, col = COL_COUNTS.min(0)
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
    """The other modes: test_losses_on_ranks.py."""
    rows, cols = indices(PAIRS)
    expected = []
    for pointwise in ('square', 'logistic'):
        model = _Model('sogram', pointwise, loss_weight=1.5)
        expected += value_and_gradients(model, model(rows[:4], cols))
    for found in run_on_ranks(_on_rank, 2):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


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
    got = _in_batch_softmax_losses(left, Samples([right], cols), share.log(), 0.7, refined=True)
    value, weighted = refined_loops(left, right, cols, share, 0.7)
    torch.testing.assert_close(got, value, rtol=1e-12, atol=1e-12)
    slopes = torch.linspace(-1, 2, 6).double()
    torch.testing.assert_close(
        *(torch.autograd.grad((x * slopes).sum(), (left, right)) for x in (got, weighted)),
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize('mode', [m for m in IN_BATCH_MODES if m != 'sogram'])
def test_the_last_pair_of_an_epoch_is_alone(mode):
    loss = InBatchLoss(mode=mode)
    loss.set_pairs(ROWS, COLS, (6, 4))
    pair = [*(x[:1].requires_grad_() for x in two_views()), ROWS[:1], COLS[:1]]
    value = loss(*pair)
    value.backward()
    assert pair[0].grad.isfinite().all()
    if mode in ('unbiased', 'unbiased_omega', 'popularity'):
        assert value == 0
        with pytest.raises(ValueError, match='a larger batch_size'):
            loss(*pair)
        loss.eval()(*pair)


def test_counts_of_the_training_pairs():
    loss = InBatchSoftmaxLoss(tau=0.5, loss_weight=2.0)
    assert loss.wants_pair_counts
    assert not InBatchSoftmaxLoss(frequency='none').wants_pair_counts
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
        samples = Samples([right], cols)
        losses = _in_batch_softmax_losses(left, samples, mixed[cols].log(), 0.5, refined)
        torch.testing.assert_close(loss(left, right, ROWS, cols), 2 * losses.mean())


def test_pairs_that_do_not_fit_are_named():
    left, right = two_views()
    loss, plain = InBatchSoftmaxLoss(), InBatchLoss()
    for x in (loss, plain):
        x.set_pairs(ROWS, COLS, (6, 4))
    with pytest.raises(ValueError, match='cols holds indices from 9 to 9'):
        loss(left, right, ROWS, COLS * 0 + 9)
    with pytest.raises(ValueError, match='entities of the 6 pairs, .* or none, got 5'):
        loss(left, right[:5], ROWS, COLS[:5])
    with pytest.raises(ValueError, match='Fix: leave labels= out, or mmrank.InBatchSoftmaxLoss'):
        plain(left, right, ROWS, COLS, labels=COLS)


def of(*numbers):
    return torch.tensor(numbers, dtype=torch.long)


#: What is wrong with two pairs, and the message.
WRONG = [
    (dict(rows=of(0, 3)), r'rows holds .* in \[0, 3\)'),
    (dict(rows=of(0, -1)), 'from -1'),
    (dict(cols=of(0, 4)), r'cols holds .* in \[0, 4\)'),
    (dict(rows=of(0, 0), cols=of(2, 2)), r'row 0, column 2\) occurs more than once'),
    (dict(row_counts=of(2, 0, 2)), r'row_counts\[1\]=0'),
    (dict(col_counts=of(2, 1, 2)), 'col_counts to 5'),
    (dict(cols=of(0)), 'one shape'),
    (dict(mode='sogram', cols=of(0)), 'one shape'),
    (dict(mode='sogram', rows=of(0), cols=of(0, 1, 1)), 'column 1 occurs 2 times .* but has 1'),
    *((dict(mode=mode, rows=of(), cols=of()), 'at least one') for mode in IN_BATCH_MODES),
]


@pytest.mark.parametrize(('change', 'message'), WRONG)
def test_bad_input(change, message):
    pairs = dict(rows=of(0, 1), cols=of(0, 1), row_counts=ROW_COUNTS, col_counts=COL_COUNTS)
    arguments = dict(pairs, mode='unbiased') | change
    scores = torch.zeros(len(arguments['rows']), len(arguments['cols']))
    with pytest.raises(ValueError, match=message):
        in_batch_loss(scores, **arguments)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_logistic_loss_and_slope_of_one_exponential(dtype):
    scores = torch.tensor([-100.0, -30, -1e-3, 0, 1e-3, 0.5, 30, 100])
    exact = scores.double().requires_grad_()
    expected = torch.log1p(exact.exp())
    (slope,) = torch.autograd.grad(expected.sum(), exact)
    got = build_pointwise('logistic').negative_and_slope(scores.to(dtype))
    rtol = 4 * torch.finfo(dtype).eps
    for x, y in zip(got, (expected.detach(), slope)):
        torch.testing.assert_close(x.double(), y, rtol=rtol, atol=1e-38)
