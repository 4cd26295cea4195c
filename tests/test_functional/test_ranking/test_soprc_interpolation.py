import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.state.score_vector import interpolate_scores

F64 = torch.float64


def brute_force(scores, length, low, high):
    """Algorithm 2 in plain Python floats, point by point."""
    u = sorted(scores)
    n = len(u)
    if n == 1:
        u = [u[0], u[0], u[0]]
    else:
        below = min(max(2 * u[0] - u[1], low), u[0])
        above = max(min(2 * u[-1] - u[-2], high), u[-1])
        u = [below, *u, above]
    points = []
    for j in range(length):
        i = j * n // length + 1
        c = j * n / length - (i - 1)
        left = (1 - c) * u[i - 1] + c * u[i]
        right = (1 - c) * u[i] + c * u[i + 1]
        points.append((left + right) / 2)
    return points


scores = st.lists(
    st.one_of(st.sampled_from([0.0, 0.5]), st.floats(-1.5, 1.5)), min_size=1, max_size=12
)


@given(scores, st.integers(1, 30))
def test_equals_brute_force(u, length):
    got = interpolate_scores(torch.tensor(u, dtype=F64), length, -1.0, 1.0)
    expected = brute_force(u, length, -1.0, 1.0)
    torch.testing.assert_close(got, torch.tensor(expected, dtype=F64), rtol=1e-12, atol=1e-12)
    assert (got.diff() >= -1e-12).all()
    assert got.min() >= min(-1.0, min(u)) - 1e-12
    assert got.max() <= max(1.0, max(u)) + 1e-12


def test_extrapolated_ends_stay_in_the_range():
    u = torch.tensor([-0.9, 0.9], dtype=F64)
    free = interpolate_scores(u, 100, -9.0, 9.0)
    bound = interpolate_scores(u, 100, -1.0, 1.0)
    assert free[0] == pytest.approx((-2.7 - 0.9) / 2)
    assert bound[0] == pytest.approx((-1.0 - 0.9) / 2)
    assert bound.max() < 0.95 < free.max()
    outside = interpolate_scores(u * 3, 100, -1.0, 1.0)
    assert outside[0] == pytest.approx(-2.7)


@pytest.mark.parametrize('n', [4, 10, 25])
@pytest.mark.parametrize(
    ('p', 'curvature'), [(lambda x: x**2, 2.0), (lambda x: torch.sin(1.5 * x), 2.25)]
)
def test_proposition_3(n, p, curvature):
    """Either line alone errs by at most max|p''|/(8 n^2), so their mean too.

    With u_i = p(i/n), the left line follows p(x) and the right one
    p(x + 1/n), in all intervals that need no extrapolated end. A score in the middle of its
    interval costs the smoothing by the mean as much again.
    """
    length = 200 * n
    x = torch.arange(length, dtype=F64) / length
    inner = slice(length // n, -length // n)
    grid = torch.arange(1, n + 1, dtype=F64) / n
    got = interpolate_scores(p(grid), length, -99.0, 99.0)
    target = (p(x) + p(x + 1 / n)) / 2
    error = (got - target)[inner].abs().max().item()
    limit = curvature / (8 * n**2)
    assert 0.1 * limit < error <= limit * (1 + 1e-9)
    got = interpolate_scores(p(grid - 0.5 / n), length, -99.0, 99.0)
    assert (got - p(x))[inner].abs().max().item() <= 2 * limit * (1 + 1e-9)
