import math

import pytest
import torch
from score_lists import joined, summed_by, surrogate_mean

from mmrank.functional import OneSidedHuber, average_precision, stable_ap_loss
from mmrank.losses.ranking.stable_ap import stable_ap_outer
from mmrank.metrics.average_precision import count_at_or_above
from theory.stable_ap import theorem1_weight

SETTING = dict(tau=0.7, bound=15.0, a=0.1, t=2.0, eps=0.1)


@pytest.mark.parametrize('method', ['intervals', 'pairs'])
@pytest.mark.parametrize('rho', [None, 1.0])
def test_gradcheck_with_frozen_weights(method, rho):
    """With t = 0 the weight is constant: the whole gradient is checked."""
    torch.manual_seed(0)
    pos = torch.randn(5, dtype=torch.float64, requires_grad=True)
    neg = torch.randn(11, dtype=torch.float64, requires_grad=True)
    setting = {**SETTING, 't': 0.0}
    with summed_by(method):
        assert torch.autograd.gradcheck(
            lambda p, n: stable_ap_loss(*joined(p, n), 0.2, rho=rho, **setting), (pos, neg)
        )


def test_weight_passes_no_gradient_and_positives_are_pushed_up():
    """The value of the gradient: test_graded_losses.py."""
    torch.manual_seed(1)
    pos = torch.randn(6, dtype=torch.float64, requires_grad=True)
    mu = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    loss = stable_ap_loss(*joined(pos, torch.randn(40)), mu, **SETTING)
    by_pos, by_mu = torch.autograd.grad(loss, (pos, mu), allow_unused=True)
    assert by_mu is None
    assert (by_pos <= 0).all()


@pytest.mark.parametrize('seed', range(8))
def test_theorem_1(seed):
    """1 - AP <= mean htilde(rho l_i/r_i) <= q/2 h(rho/n+ sum w_i l_i)."""
    g = torch.Generator().manual_seed(seed)
    num_pos = 2 * int(torch.randint(1, 30, (1,), generator=g))
    num_neg = int(torch.randint(1, 400, (1,), generator=g))
    pos = torch.rand(num_pos, generator=g, dtype=torch.float64) * 2 - 0.8
    neg = torch.rand(num_neg, generator=g, dtype=torch.float64) * 2 - 1.2
    tau, eps, rho = 0.5, 0.01, num_neg / num_pos
    bound = OneSidedHuber(tau).bound(-1.2, 1.2)
    scores = torch.cat([pos, neg])
    labels = torch.arange(scores.numel()) < num_pos
    risk = 1 - average_precision(scores, labels)
    means = surrogate_mean(pos, neg, tau)
    rank = count_at_or_above(pos, pos) / num_pos
    x = rho * means / rank
    middle = (x / (1 + x)).mean()
    q = math.pi / 2 + 2 * (1 + rho * bound) / (1 + 2 * rho * bound)
    weighted = (theorem1_weight(rank, rho, bound) * means).sum()
    upper = q / 2 * stable_ap_outer(rho / num_pos * weighted, eps)
    total = theorem1_weight(rank, rho, bound).sum() / num_pos
    # Step (b) of the proof: the weights inside h have mean 1.
    step_b = total * stable_ap_outer(rho / num_pos * weighted / total, eps)
    assert risk <= middle + 1e-12
    assert middle <= step_b + 1e-12
    assert step_b <= upper + 1e-12
