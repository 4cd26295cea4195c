"""The weights of theorem 1 of stable AP (2025), compared with the weights that train."""

import math

import pytest
import torch

from mmrank.functional import OneSidedHuber
from mmrank.functional.metrics.average_precision import count_at_or_above
from mmrank.losses.ranking.stable_ap import mean_one, practical_weight, smoothed_rank
from theory.stable_ap import theorem1_weight


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


def test_practical_weights_equal_the_theorem_above_one_half():
    """With ``a = rho B`` and ``t = 1``."""
    upper = torch.linspace(0.6, 1, 5, dtype=torch.float64)
    torch.testing.assert_close(
        practical_weight(upper, a=210.0, t=1.0), theorem1_weight(upper, 10.0, 21.0)
    )


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
