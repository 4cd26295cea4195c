"""Losses of in-batch sampling against their definitions."""

import pytest
import torch
from in_batch_enumeration import (
    COL_COUNTS,
    NUM_POSITIVES,
    OMEGA,
    ROW_COUNTS,
    batch_loss,
    batches,
    in_batch_loss,
    indices,
    score_matrix,
)
from subjects import assert_same_gradients

from mmrank.losses.two_tower import sums
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES
from mmrank.losses.two_tower.pointwise import build_pointwise
from mmrank.losses.two_tower.sums import pair_scores

PAPER_MODES = IN_BATCH_MODES[:5]
POINTWISE = ('square', 'logistic')
NONE = torch.zeros(0, dtype=torch.long)


def loss_of(scores, batch, mode, pointwise):
    rows, cols = indices(batch)
    return in_batch_loss(
        scores[rows][:, cols],
        rows,
        cols,
        ROW_COUNTS,
        COL_COUNTS,
        mode,
        pointwise=pointwise,
        omega=OMEGA if mode == 'unbiased_omega' else 1.0,
    )


def value_and_gradient(function, scores):
    value = function(scores)
    (gradient,) = torch.autograd.grad(value, scores)
    return torch.cat([value.detach()[None], gradient.flatten()])


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize('pointwise', POINTWISE)
@pytest.mark.parametrize('mode', PAPER_MODES)
def test_equals_the_printed_definition(mode, pointwise):
    scores = score_matrix(1)
    for size in range(2, NUM_POSITIVES + 1):
        for batch in batches(size)[::3]:
            assert_same(
                value_and_gradient(lambda s, b=batch: loss_of(s, b, mode, pointwise), scores),
                value_and_gradient(lambda s, b=batch: batch_loss(s, b, mode, pointwise), scores),
            )


@pytest.mark.parametrize('pointwise', POINTWISE)
@pytest.mark.parametrize('sizes', [(1, 1), (2, 1), (2, 2), (1, 3)])
def test_two_samples_of_sogram_equal_the_printed_definition(pointwise, sizes):
    scores = score_matrix(4)
    for first, second in zip(*(batches(size)[-2:] for size in sizes)):

        def own(s, first=first, second=second):
            (rows, _), (_, cols) = indices(first), indices(first + second)
            counts = ROW_COUNTS, COL_COUNTS
            return in_batch_loss(
                s[rows][:, cols], rows, cols, *counts, 'sogram', pointwise=pointwise
            )

        def printed(s, first=first, second=second):
            return batch_loss(s, first, 'sogram', pointwise, second)

        assert_same(value_and_gradient(own, scores), value_and_gradient(printed, scores))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(rows=torch.tensor([0, 3])), r'rows holds .* in \[0, 3\)'),
        (dict(rows=torch.tensor([0, -1])), 'from -1'),
        (dict(cols=torch.tensor([0, 4])), r'cols holds .* in \[0, 4\)'),
        (
            dict(rows=torch.tensor([0, 0]), cols=torch.tensor([2, 2])),
            r'row 0, column 2\) occurs more than once',
        ),
        (dict(row_counts=torch.tensor([2, 0, 2])), r'row_counts\[1\]=0'),
        (dict(col_counts=torch.tensor([2, 1, 2])), 'col_counts to 5'),
        (dict(cols=torch.tensor([0])), 'one shape'),
        (dict(mode='sogram', cols=torch.tensor([0])), 'one shape'),
        (
            dict(mode='sogram', rows=torch.tensor([0]), cols=torch.tensor([0, 1, 1])),
            'column 1 occurs 2 times in the second sample, but has 1',
        ),
        *((dict(mode=mode, rows=NONE, cols=NONE), 'at least one') for mode in IN_BATCH_MODES),
    ],
)
def test_bad_input(change, message):
    pairs = torch.tensor([0, 1])
    arguments = dict(rows=pairs, cols=pairs, row_counts=ROW_COUNTS, col_counts=COL_COUNTS)
    arguments |= dict(mode='unbiased', **change) if 'mode' not in change else change
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


@pytest.mark.parametrize('pairs', [0, 1, 7, 23])
@pytest.mark.parametrize('sizes', [(5, 3), (1, 1)])
def test_equals_the_gathered_product(monkeypatch, pairs, sizes):
    monkeypatch.setattr(sums, 'BLOCK_PAIRS', 5)
    g = torch.Generator().manual_seed(pairs)
    left, right = (
        torch.randn(n, 4, generator=g, dtype=torch.float64, requires_grad=True) for n in sizes
    )
    indices = [torch.randint(n, (pairs,), generator=g) for n in sizes]
    actual = pair_scores(left, right, *indices)
    expected = (left[indices[0]] * right[indices[1]]).sum(1)
    assert_same_gradients(actual, expected, [left, right], rtol=1e-12, atol=1e-12)
