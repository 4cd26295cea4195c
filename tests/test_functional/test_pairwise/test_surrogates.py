import math

import pytest
import torch
from score_lists import plain_huber

from mmrank.functional import OneSidedHuber, Sigmoid, SquaredHinge
from mmrank.losses.pairs_smooth import OneSidedSigmoid


@pytest.mark.parametrize('tau', [0.01, 0.3, 1.0, 7.0])
def test_one_sided_huber_is_its_definition(tau):
    xs = [-1e4, -2.0, -1e-9, 0.0, 1e-9, tau / 2, tau, tau * 1.5, 1e4]
    got = OneSidedHuber(tau)(torch.tensor(xs, dtype=torch.float64))
    assert got.tolist() == pytest.approx([plain_huber(x, tau) for x in xs], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize('kind', [OneSidedHuber, Sigmoid, SquaredHinge])
@pytest.mark.parametrize('tau', [0.1, 1.0])
def test_surrogate_contract(kind, tau):
    """Bounds l01, decreases, derivative is the slope, bound is reached."""
    surrogate = kind(tau)
    x = torch.linspace(-3, 3, 601, dtype=torch.float64)
    value = surrogate(x)
    assert (value >= (x <= 0).double() - 1e-12).all()
    assert (value.diff() <= 1e-12).all()
    slopes = torch.empty_like(x)
    assert surrogate.terms(x.clone(), False, slopes) is None
    step = 1e-6
    expected = (surrogate(x + step) - surrogate(x - step)) / (2 * step)
    kinked = (x.abs() < 2 * step) | ((x - tau).abs() < 2 * step)
    wrong = (surrogate.slope_factor * slopes - expected).abs() > 1e-7 / tau**2
    assert not (wrong & ~kinked).any()
    assert surrogate(torch.tensor(-2.0, dtype=torch.float64)).item() == pytest.approx(
        surrogate.bound(-0.5, 1.5), rel=1e-12
    )


@pytest.mark.parametrize('tau', [1e-4, 0.1])
def test_one_sided_sigmoid(tau):
    x = torch.tensor([-5.0, -tau, 0.0, 3.0], dtype=torch.float64)
    expected = [math.tanh(5 / (2 * tau)), math.tanh(0.5), 0.0, 0.0]
    assert OneSidedSigmoid(tau)(x).tolist() == pytest.approx(expected)
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)
    assert (OneSidedSigmoid(tau)(x) <= (x <= 0).double()).all()
