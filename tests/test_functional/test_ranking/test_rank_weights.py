import math

import pytest
import torch

from mmrank.functional import (
    OneSidedHuber,
    count_at_or_above,
    mean_one,
    practical_weight,
    smoothed_rank,
    theorem1_weight,
)


@pytest.mark.parametrize('rho', [0.5, 10.0, 1000.0])
@pytest.mark.parametrize('bound', [1.0, 41.0])
def test_theorem1_weight_is_its_definition(rho, bound):
    for rank in (0.01, 0.3, 0.5, 0.51, 0.8, 1.0):
        expected = (
            0.5 / math.sqrt(rank - rank**2)
            if rank <= 0.5
            else (1 + rho * bound) / (rank + rho * bound)
        )
        got = theorem1_weight(torch.tensor(rank, dtype=torch.float64), rho, bound)
        assert got.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize('num_pos', [2, 8, 100, 5000])
@pytest.mark.parametrize('rho_bound', [(0.5, 1.0), (100.0, 21.0)])
def test_sum_of_theorem1_weights(num_pos, rho_bound):
    """Must hold for even n+: n+ <= sum w <= (pi/4 + ...) n+."""
    rho, bound = rho_bound
    scores = torch.randn(num_pos, dtype=torch.float64)
    total = theorem1_weight(count_at_or_above(scores, scores) / num_pos, rho, bound).sum().item()
    x = rho * bound
    assert num_pos <= total <= (math.pi / 4 + (1 + x) / (1 + 2 * x)) * num_pos


def test_practical_weight():
    x = torch.linspace(0, 1, 11, dtype=torch.float64)
    weight = practical_weight(x, a=0.1, t=2.0)
    assert weight[0].item() == pytest.approx(121.0)
    assert weight[-1].item() == pytest.approx(1.0)
    assert (weight.diff() < 0).all()
    assert (practical_weight(x, t=0.0) == 1).all()
    # With a = rho B and t = 1 it is theorem 1's weight above one half.
    upper = x[x > 0.5]
    torch.testing.assert_close(
        practical_weight(upper, a=210.0, t=1.0), theorem1_weight(upper, 10.0, 21.0)
    )


def test_smoothed_rank_is_clamped_and_orders_by_score():
    pos = torch.tensor([-1e4, -1.0, 0.0, 0.4, 2.0, 1e4])
    rank = smoothed_rank(pos, 0.5, OneSidedHuber(1.0), bound=21.0)
    assert rank[0] == 1
    assert (rank[-2:] == 0).all()
    assert (rank.diff() <= 0).all()
    assert rank[2].item() == pytest.approx(2 / 21)


@pytest.mark.parametrize(
    ('kwargs', 'name'), [({'a': 0.0}, 'a must be'), ({'t': -1.0}, 't must be')]
)
def test_bad_parameters_are_named(kwargs, name):
    with pytest.raises(ValueError, match=name):
        practical_weight(torch.zeros(1), **kwargs)
    with pytest.raises(ValueError, match='bound must be'):
        smoothed_rank(torch.zeros(1), 0.0, OneSidedHuber(1.0), 0.0)


def test_mean_one_divides_each_list_by_its_own_mean():
    weight = torch.tensor([[121.0, 60.0, 0.0], [3.0, 0.0, 0.0], [0.0] * 3])
    mask = weight > 0
    got = mean_one(weight, mask)
    assert got[0].tolist() == pytest.approx([121 / 90.5, 60 / 90.5, 0])
    assert got[1].tolist() == [1, 0, 0]
    assert got[2].tolist() == [0, 0, 0]
    torch.testing.assert_close(mean_one(weight[:1, :2]), got[:1, :2])


@pytest.mark.parametrize('seed', range(5))
def test_printed_weights_are_50_to_120_times_theorem_1(seed):
    """Why they are divided: ranks near 0 for all of them."""
    g = torch.Generator().manual_seed(seed)
    pos = torch.randn(500, generator=g, dtype=torch.float64) - 4.6
    rank = smoothed_rank(pos, pos.mean(), OneSidedHuber(1.0), 21.0)
    printed = practical_weight(rank).mean()
    theory = theorem1_weight(count_at_or_above(pos, pos) / 500, 1000.0, 21.0)
    assert 40 < printed / theory.mean() < 120
    assert mean_one(practical_weight(rank)[None]).mean() == pytest.approx(1)
