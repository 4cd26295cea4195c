"""Inner products of pairs, against the gathered rows."""

import pytest
import torch

from mmrank.losses.two_tower.sums import pair_scores


@pytest.mark.parametrize('pairs', [0, 1, 7, 23])
@pytest.mark.parametrize('sizes', [(5, 3), (1, 1)])
def test_equals_the_gathered_product(pairs, sizes):
    g = torch.Generator().manual_seed(pairs)
    left, right = (
        torch.randn(n, 4, generator=g, dtype=torch.float64, requires_grad=True) for n in sizes
    )
    indices = [torch.randint(n, (pairs,), generator=g) for n in sizes]
    actual = pair_scores(left, right, *indices, block_size=5)
    expected = (left[indices[0]] * right[indices[1]]).sum(1)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn(pairs, generator=g, dtype=torch.float64)
    for x, y in zip(
        torch.autograd.grad(actual @ weights, [left, right]),
        torch.autograd.grad(expected @ weights, [left, right]),
    ):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)


def test_gradient_of_one_side_and_strided_rows():
    left = torch.randn(6, 4, dtype=torch.float64).t().requires_grad_()
    right = torch.randn(3, 6, dtype=torch.float64)
    index = torch.tensor([0, 1, 1, 3])[::2], torch.tensor([2, 0])
    assert torch.autograd.gradcheck(lambda x: pair_scores(x, right, *index), [left])
