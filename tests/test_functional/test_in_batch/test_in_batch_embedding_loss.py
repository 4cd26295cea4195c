"""The loss from embeddings equals the loss from the score matrix."""

import pytest
import torch
from in_batch_enumeration import (
    COL_COUNTS,
    NUM_POSITIVES,
    PAIRS,
    ROW_COUNTS,
    SHAPE,
    indices,
    objective,
)

from mmrank.functional import Pointwise, in_batch_loss
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES, in_batch_embedding_loss
from mmrank.losses.two_tower.sums import weighted_cross_sum

COUNTS = (ROW_COUNTS, COL_COUNTS, NUM_POSITIVES)
SETTING = dict(omega=0.3, shape=SHAPE)


class _SquaredHinge(Pointwise):
    def positive(self, scores):
        return (1 - scores).clamp(min=0).square()

    def negative(self, scores):
        return (1 + scores).clamp(min=0).square()

    def negative_slope(self, scores):
        return 2 * (1 + scores).clamp(min=0)


POINTWISE = ['square', 'logistic', _SquaredHinge()]


def towers(dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    return [torch.randn(size, 3, generator=g, dtype=dtype).requires_grad_() for size in SHAPE]


def results(loss, parameters):
    gradients = torch.autograd.grad(2.5 * loss, parameters)
    return [loss.detach(), *gradients]


def assert_same(actual, expected, tolerance=1e-12):
    for x, y in zip(actual, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=tolerance)


@pytest.mark.parametrize('pointwise', POINTWISE)
@pytest.mark.parametrize('mode', IN_BATCH_MODES)
@pytest.mark.parametrize('block_size', [1, 3, 64])
def test_equals_the_loss_of_the_matrix(mode, pointwise, block_size):
    left, right = towers()
    rows, cols = indices(PAIRS[:5])
    setting = dict(mode=mode, pointwise=pointwise, **SETTING)
    expected = in_batch_loss(left[rows] @ right[cols].t(), rows, cols, *COUNTS, **setting)
    expected = results(expected, (left, right))
    for with_index in (False, True):
        parts = dict(left_index=rows, right_index=cols) if with_index else dict()
        actual = in_batch_embedding_loss(
            left if with_index else left[rows],
            right if with_index else right[cols],
            rows,
            cols,
            *COUNTS,
            block_size=block_size,
            **setting,
            **parts,
        )
        assert_same(results(actual, (left, right)), expected)


@pytest.mark.parametrize('pointwise', ['square', 'logistic'])
@pytest.mark.parametrize('mode', ['unbiased', 'unbiased_omega', 'popularity'])
def test_all_pairs_are_the_full_objective(mode, pointwise):
    left, right = towers()
    rows, cols = indices(PAIRS)
    actual = in_batch_embedding_loss(
        left,
        right,
        rows,
        cols,
        *COUNTS,
        mode=mode,
        pointwise=pointwise,
        left_index=rows,
        right_index=cols,
        **SETTING,
    )
    expected = objective(left @ right.t(), mode, pointwise, NUM_POSITIVES)
    assert_same(results(actual, (left, right)), results(expected, (left, right)))


def test_sogram_with_the_columns_of_two_samples():
    left, right = towers()
    rows, cols = indices(PAIRS[:5])
    rows = rows[:2]
    setting = dict(mode='sogram', pointwise='logistic', **SETTING)
    expected = in_batch_loss(left[rows] @ right[cols].t(), rows, cols, *COUNTS, **setting)
    actual = in_batch_embedding_loss(left[rows], right[cols], rows, cols, *COUNTS, **setting)
    assert_same(results(actual, (left, right)), results(expected, (left, right)))


@pytest.mark.parametrize('pointwise', POINTWISE)
def test_gradcheck_of_the_cross_sum(pointwise):
    from mmrank.losses.two_tower.pointwise import build_pointwise

    left, right = towers()
    x, y = torch.rand(3).double(), torch.rand(4).double()
    assert torch.autograd.gradcheck(
        lambda a, b: weighted_cross_sum(a, b, x, y, build_pointwise(pointwise), 2), (left, right)
    )


def test_no_gradient_is_computed_where_none_is_asked_for():
    left, right = (x.detach() for x in towers())
    rows, cols = indices(PAIRS)
    loss = in_batch_embedding_loss(
        left[rows],
        right[cols],
        rows,
        cols,
        *COUNTS,
        mode='unbiased',
        pointwise='logistic',
        **SETTING,
    )
    assert not loss.requires_grad


class _Watched(_SquaredHinge):
    """Notes the largest block that it sees off the diagonal."""

    largest = 0

    def negative(self, scores):
        if scores.dim() == 2:
            self.largest = max(self.largest, scores.numel())
        return super().negative(scores)


def test_no_block_is_larger_than_the_block_size():
    n = 50
    pairs = torch.arange(n)
    ones = torch.ones(n)
    watched = _Watched()
    embeddings = torch.randn(n, 3).requires_grad_()
    in_batch_embedding_loss(
        embeddings,
        embeddings,
        pairs,
        pairs,
        ones,
        ones,
        n,
        mode='unbiased',
        pointwise=watched,
        shape=(n, n),
        block_size=8,
    ).backward()
    assert watched.largest == 64


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(left=torch.zeros(3, 2)), 'left has 3 embeddings for 2 pairs'),
        (dict(right=torch.zeros(2, 3)), 'one width'),
        (dict(left=torch.zeros(2)), 'left must be a matrix'),
        (dict(left_index=torch.zeros(3).long()), r'left_index must be \(2,\)'),
        (dict(right_index=torch.tensor([0, 2])), 'right_index holds'),
        (dict(block_size=0, pointwise='logistic'), 'block_size must be at least 1'),
    ],
)
def test_bad_input(change, message):
    arguments = dict(
        left=torch.zeros(2, 2),
        right=torch.zeros(2, 2),
        rows=torch.tensor([0, 1]),
        cols=torch.tensor([0, 1]),
        row_counts=ROW_COUNTS,
        col_counts=COL_COUNTS,
        num_positives=NUM_POSITIVES,
        mode='unbiased',
        shape=SHAPE,
    )
    with pytest.raises(ValueError, match=message):
        in_batch_embedding_loss(**{**arguments, **change})
