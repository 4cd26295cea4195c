"""Global contrastive losses against loops in float64, and their oracles."""

import math

import pytest
import torch
from random_batches import assert_same_gradients
from torch.nn.functional import normalize

from mmrank.functional import global_contrastive_loss, unit_rows
from mmrank.losses.contrastive import terms as log_mean_exp
from mmrank.losses.contrastive.base import ContrastedBatch
from mmrank.losses.contrastive.info_nce import info_nce_losses
from mmrank.losses.contrastive.sogclr import _temperature_gradient
from mmrank.losses.contrastive.terms import NegativeTerms, negative_terms
from mmrank.state.sample_averages import TemperatureStep
from timing import peak_extra_memory


def views(n, dim=5, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return [
        normalize(torch.randn(n, dim, generator=g, dtype=torch.float64)).to(dtype) for _ in range(2)
    ]


def two_view_terms(view1, view2, tau, ids=None):
    terms = ContrastedBatch.of_views([view1, view2], ids).terms(tau, bimodal=False)
    return NegativeTerms(*(x.flatten() for x in vars(terms).values()))


def test_gradient_without_negatives_is_zero():
    view1, view2 = (x.requires_grad_() for x in views(3))
    ids = torch.zeros(3, dtype=torch.long)
    terms = two_view_terms(view1, view2, 0.3, ids)
    for losses in (
        info_nce_losses(terms),
        info_nce_losses(terms, False),
        global_contrastive_loss(terms.log_mean, terms.log_mean, 0.3, 0.2),
    ):
        assert losses.tolist() == [0] * 6
        grads = torch.autograd.grad(losses.sum(), (view1, view2), retain_graph=True)
        assert all(torch.equal(g, torch.zeros_like(g)) for g in grads)


def test_temperature_gradient_is_that_of_the_dual():
    view1, view2 = views(5)
    tau = torch.linspace(0.1, 0.9, 5, dtype=torch.float64)
    tau.requires_grad_()
    terms = two_view_terms(view1, view2, tau)
    dual = tau.repeat(2) * terms.log_mean + (tau.repeat(2) - 0.05) * 0.3
    expected = torch.autograd.grad(dual.sum(), tau)[0]
    gradient = _temperature_gradient(
        terms.log_mean, terms.log_mean, terms.mean_h, tau.repeat(2), 0.3
    )
    torch.testing.assert_close(gradient.view(2, 5).sum(0), expected)


@pytest.mark.parametrize('rho', [0.05, 0.3, 1.0])
def test_dual_equals_primal(rho):
    scipy = pytest.importorskip('scipy.optimize')
    h = torch.tensor([0.3, 0.1, -0.2, -0.9], dtype=torch.float64)
    tau0 = 0.05

    def kl(p):
        return sum(x * math.log(max(x, 1e-300) * len(p)) for x in p)

    def of_p(p):
        return -(float(h @ torch.as_tensor(p)) - tau0 * kl(p))

    solved = scipy.minimize(
        of_p,
        [0.25] * 4,
        bounds=[(1e-12, 1)] * 4,
        constraints=[
            {'type': 'eq', 'fun': lambda p: sum(p) - 1},
            {'type': 'ineq', 'fun': lambda p: rho - kl(p)},
        ],
        options={'ftol': 1e-14, 'maxiter': 500},
    )

    def dual(tau):
        log_g = (h / tau).logsumexp(0) - math.log(4)
        return float(global_contrastive_loss(log_g, log_g, tau, rho, tau0))

    best = scipy.minimize_scalar(
        dual, bounds=(tau0, 50), method='bounded', options={'xatol': 1e-10}
    )
    assert min(best.fun, dual(tau0)) == pytest.approx(-solved.fun, abs=1e-6)


@pytest.mark.parametrize('rho', [0.3, 1.0, 2.5])
def test_temperatures_settle_below_tau_over_rho_and_swing_above(rho):
    # Normal h by their quantiles.
    levels = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    h = 0.3 * math.sqrt(2) * torch.erfinv(2 * levels - 1)
    start = torch.tensor([0.3 / math.sqrt(2 * rho)], dtype=torch.float64)

    def last(eta):
        step = TemperatureStep(eta=eta, tau0=0.02)
        tau, momentum, visited = 1.2 * start, torch.zeros_like(start), []
        for _ in range(200):
            log_g = (h / tau).logsumexp(0) - math.log(len(h))
            mean_h = ((h / tau).softmax(0) * h).sum()[None]
            gradient = _temperature_gradient(log_g, log_g, mean_h, tau, rho)
            tau, momentum = step(tau, momentum, gradient)
            visited.append(float(tau))
        return torch.tensor(visited[-50:]) / start

    limit = float(start) / rho
    settled = last(0.5 * limit)
    assert settled.std() < 1e-6
    # The tails of 4,000 quantiles are a little short.
    torch.testing.assert_close(settled, torch.ones_like(settled), rtol=0.1, atol=0)
    assert last(2 * limit).std() > 0.1


def test_temperature_step():
    step = TemperatureStep(eta=0.1, beta1=0.25)
    tau, momentum = step(
        torch.tensor([0.5, 0.06, 0.99]),
        torch.tensor([1.0, 0.0, 0.0]),
        torch.tensor([2.0, 5.0, -5.0]),
    )
    torch.testing.assert_close(momentum, torch.tensor([1.25, 1.25, -1.25]))
    torch.testing.assert_close(tau, torch.tensor([0.375, 0.05, 1.0]))


@pytest.mark.parametrize('size', [1e-30, 1e30])
def test_unit_rows_of_any_size(size):
    x = torch.tensor([[3.0, 4.0]]) * size
    x.requires_grad_()
    rows = unit_rows(x)
    torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8]]))
    assert torch.autograd.grad(rows.sum(), x)[0].isfinite().all()


def test_unit_rows():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    rows = unit_rows(x)
    torch.testing.assert_close(rows[1], torch.zeros(2))
    assert torch.autograd.grad(rows.sum(), x)[0].isfinite().all()
    assert unit_rows(torch.zeros(0, 3)).shape == (0, 3)
    assert unit_rows(torch.ones(2, 2).bfloat16()).dtype == torch.float32
    x = views(3)[0].mul(3).requires_grad_()
    assert torch.autograd.gradcheck(unit_rows, x)
    assert torch.autograd.gradgradcheck(unit_rows, x)


def by_definition(anchors, positives, keys, tau, anchor_ids, key_ids):
    """Terms of anchors by the plain definition, without blocks."""
    h = anchors @ keys.t() - (anchors * positives).sum(1, keepdim=True)
    other = anchor_ids[:, None] != key_ids
    scaled = (h / tau[:, None]).masked_fill(~other, -math.inf)
    count = other.sum(1)
    mean_h = (scaled.softmax(1) * h).sum(1)
    return NegativeTerms(scaled.logsumexp(1) - count.log(), mean_h.detach(), count)


# Similarities are kept for backward, or computed once more; in one strip, or in several, the last
# of them shorter.
@pytest.mark.parametrize('dim', [2, 16])
@pytest.mark.parametrize('entries', [1, 30, 10**6])
@pytest.mark.parametrize('repeated', [False, True])
@pytest.mark.parametrize('kept', [0, 10**6])
def test_both_directions_equal_each_alone(monkeypatch, dim, entries, repeated, kept):
    monkeypatch.setattr(log_mean_exp, 'BLOCK_ENTRIES', entries)
    monkeypatch.setattr(log_mean_exp, '_KEPT_ENTRIES', kept)
    ids = torch.arange(11)
    if repeated:
        ids = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
    n = len(ids)
    view1, view2 = views(n, dim)
    tau1 = torch.linspace(0.05, 0.9, n, dtype=torch.float64)
    tau2 = tau1.flip(0) + 0.1
    inputs = [x.requires_grad_() for x in (view1, view2, tau1, tau2)]
    rows, swapped = torch.cat([view1, view2]), torch.cat([view2, view1])
    tau, row_ids = torch.cat([tau1, tau2]), ids.repeat(2)
    got = [
        negative_terms(view1, view2, view2, torch.stack([tau1, tau2]), ids, ids),
        negative_terms(rows, swapped, rows, tau, row_ids, row_ids),
    ]
    expected = [
        by_definition(view1, view2, view2, tau1, ids, ids),
        by_definition(view2, view1, view1, tau2, ids, ids),
        by_definition(rows, swapped, rows, tau, row_ids, row_ids),
    ]
    mean_h, count, log_mean = (
        [torch.cat([getattr(x, name).flatten() for x in terms]) for terms in (got, expected)]
        for name in ('mean_h', 'count', 'log_mean')
    )
    torch.testing.assert_close(*mean_h)
    assert torch.equal(*count)
    assert_same_gradients(*log_mean, inputs)


def test_memory_is_at_most_six_times_one_view():
    def both(view1, view2):
        terms = ContrastedBatch.of_views([view1, view2]).terms(0.05, bimodal=True)
        terms.log_mean.sum().backward()

    # Smaller ones take 4 MiB and more, whatever their size.
    n, dim = 2048, 256
    made = [x.requires_grad_() for x in views(n, dim, dtype=torch.float)]
    peak = peak_extra_memory(both, lambda: [x.detach().requires_grad_() for x in made])
    assert peak < 6.2 * n * dim * 4
