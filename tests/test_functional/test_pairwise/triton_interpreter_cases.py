"""Cases for the kernels on the CPU, run by test_triton_interval_sums.

Not collected by name: triton must have its interpreter set before it is
imported, which only a process of its own can do.
"""

import os

import pytest
import torch

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.functional.pairwise.triton import sums as host
from mmrank.functional.ranking.error_driven.update import StepSums

assert os.environ.get('TRITON_INTERPRET') == '1'


@pytest.fixture(autouse=True)
def small_programs(monkeypatch):
    """Several programs and copies of the sums even for short lists."""
    monkeypatch.setattr(host, '_BLOCK', 256)
    monkeypatch.setattr(host, '_TILES', 2)
    torch.manual_seed(0)


def run(method, pos, neg, tau, pos_mask=None, neg_mask=None):
    """Sums and both gradients, the positives weighted unequally."""
    p = pos.detach().clone().requires_grad_()
    n = neg.detach().requires_grad_()
    n.grad = None
    total = pairwise_surrogate_sum(
        p,
        n,
        OneSidedHuber(tau),
        pos_mask=pos_mask,
        neg_mask=neg_mask,
        method=method,
    )
    weight = torch.linspace(0.5, 1.5, pos.size(1), dtype=torch.float64)
    (total * weight).sum().backward()
    return total.detach(), p.grad, n.grad


def errors(pos, neg, tau, **masks):
    """Largest errors relative to the largest entry, and the dtypes kept."""
    got = run('triton', pos, neg, tau, **masks)
    want = run('pairs', pos.double(), neg.double(), tau, **masks)
    assert got[1].dtype == pos.dtype
    assert got[2].dtype == neg.dtype
    return [
        ((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
        for a, b in zip(got, want)
    ]


def scores(kind, positives=30, negatives=700):
    pos = torch.randn(1, positives, dtype=torch.float64)
    neg = torch.randn(1, negatives, dtype=torch.float64) - 1
    if kind == 'tied':
        return (pos * 2).round() / 2, (neg * 2).round() / 2
    if kind == 'huge':
        return 1e4 * pos, 1e4 * neg
    if kind == 'tiny range':
        return 1 + 1e-4 * pos, 1 + 1e-4 * neg
    if kind == 'far apart':
        pos[0, 0] = 1e6
        neg[0, :100] += torch.logspace(0, 6, 100)
    if kind == 'below':
        return pos, neg - 20
    return pos, neg


@pytest.mark.parametrize('tau', [0.01, 1.0])
@pytest.mark.parametrize(
    'kind', ['random', 'tied', 'huge', 'tiny range', 'far apart']
)
def test_float32_equals_all_pairs(kind, tau):
    pos, neg = (x.float() for x in scores(kind))
    assert max(errors(pos, neg, tau)) < 5e-7


@pytest.mark.parametrize('kind', ['random', 'far apart'])
def test_float64_equals_all_pairs(kind):
    assert max(errors(*scores(kind), 0.7)) < 1e-11


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    value, *grads = errors(*(x.to(dtype) for x in scores('random')), 1.0)
    assert value < 1e-8
    # Rounded to the dtype of the scores; the interpreter cuts bfloat16 off.
    assert max(grads) < torch.finfo(dtype).eps


@pytest.mark.parametrize('far', [1e3, 1e8, 1e12])
def test_little_above_a_positive_in_a_wide_gap(far):
    """Fixed point relative to the gap alone would round this away."""
    pos, neg = torch.tensor([[0.0, far]]), torch.rand(1, 40) * 3
    got = run('triton', pos, neg, 1.0)
    want = run('pairs', pos.double(), neg.double(), 1.0)
    for a, b in zip(got, want):
        torch.testing.assert_close(a.double(), b, rtol=3e-7, atol=0)


def test_nothing_reaches_a_window():
    total, grad_pos, grad_neg = run('triton', *scores('below'), 1.0)
    assert not total.any()
    assert not grad_pos.any()
    assert not grad_neg.any()


def test_everything_above():
    pos, neg = scores('below')
    assert max(errors(pos.float() - 40, neg.float(), 1.0)) < 5e-7


def test_masked_strided_lists():
    pos, neg = torch.randn(4, 9), torch.randn(700, 4).t()
    pos_mask, neg_mask = torch.rand(4, 9) < 0.6, torch.rand(700, 4).t() < 0.5
    pos_mask[1], neg_mask[2] = False, False
    # Padding may hold anything.
    pos = torch.where(pos_mask, pos, float('nan'))
    neg = torch.where(neg_mask, neg, 1e9).t().contiguous().t()
    assert not neg.is_contiguous()
    masks = dict(pos_mask=pos_mask, neg_mask=neg_mask)
    got = run('triton', pos, neg, 1.0, **masks)
    want = run('intervals', pos, neg, 1.0, **masks)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)
    assert not got[0][~pos_mask].any()
    assert not got[2][~neg_mask].any()


@pytest.mark.parametrize(
    ('positives', 'negatives'), [(0, 5), (5, 0), (1, 1), (1, 600)]
)
def test_empty_and_single(positives, negatives):
    pos, neg = torch.zeros(1, positives), torch.zeros(1, negatives)
    total, grad_pos, grad_neg = run('triton', pos, neg, 1.0)
    assert total.tolist() == [[float(negatives)] * positives]
    assert grad_pos.shape == pos.shape
    assert grad_neg.shape == neg.shape


def test_infinite_and_nan_scores():
    inf, nan = float('inf'), float('nan')

    def both(pos, neg):
        return run('triton', torch.tensor([pos]), torch.tensor([neg]), 1.0)

    total, grad_pos, grad_neg = both([0.0, inf], [-inf, -inf, 0.5])
    torch.testing.assert_close(total.float(), torch.tensor([[2.0, 0.0]]))
    assert grad_pos.isfinite().all()
    assert grad_neg[0, :2].tolist() == [0, 0]
    total, _, grad_neg = both([0.0], [inf, 0.0])
    assert total.item() > 1e29
    assert grad_neg.isfinite().all()
    assert both([-inf], [0.0])[0].item() > 1e29
    assert both([0.0, 1.0], [nan, 0.0])[0].isnan().all()
    total = both([nan, 1.0], [0.0, 2.0])[0]
    assert total[0, 0].isnan()
    assert total[0, 1].item() == 3


def test_order_of_the_scores_changes_no_bit():
    """Which program adds first cannot matter: here, another one adds."""
    pos, neg = (x.float() for x in scores('random'))
    neg.clamp_(max=pos.max().item())
    order = torch.randperm(neg.size(1))
    one = run('triton', pos, neg, 1.0)
    two = run('triton', pos, neg[:, order], 1.0)
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])
    assert torch.equal(one[2][:, order], two[2])


@pytest.mark.parametrize('delta', [0.05, 0.5])
def test_step_counts_and_their_transpose(delta):
    """What the AP, aLRP and Rank & Sort losses require."""
    pos, neg = (x.float() for x in scores('random'))
    mask = torch.ones_like(pos, dtype=torch.bool)
    weight = torch.rand(pos.shape, dtype=torch.float64)
    results = []
    for method in ('triton', 'pairs'):
        steps = StepSums(delta, method)
        count, extra = steps.count(pos, mask, neg, None)
        results.append((count, steps.spread(weight, neg, *extra)))
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('method', ['triton', 'intervals', 'pairs'])
def test_compiles_in_one_graph(method):
    # Long enough for the CPU's grid, whose sizes depend on the data.
    size = 300 if method == 'triton' else 70_000
    pos, neg = (x.float() for x in scores('random', 5, size))
    mask = torch.rand(neg.shape) < 0.5

    def loss(p, n):
        total = pairwise_surrogate_sum(
            p, n * 2, OneSidedHuber(0.7), neg_mask=mask, method=method
        )
        return total.square().sum()

    results = []
    for function in (
        loss,
        torch.compile(loss, fullgraph=True, backend='aot_eager'),
    ):
        p, n = pos.clone().requires_grad_(), neg.clone().requires_grad_()
        value = function(p, n)
        value.backward()
        results.append((value.detach(), p.grad, n.grad))
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)


def test_operators_keep_their_contract():
    """Schemas, fake tensors: what torch.compile relies on."""
    pos, neg = (x.float() for x in scores('random', 4, 50))
    pos_mask = torch.ones_like(pos, dtype=torch.bool)
    mask = torch.rand(neg.shape) < 0.5
    tests = ('test_schema', 'test_faketensor')
    arguments = (pos, pos_mask, neg, mask, 0.5)
    torch.library.opcheck(host._sums, arguments, test_utils=tests)
    _, _, *extra = host._sums(*arguments)
    torch.library.opcheck(
        host._gradient,
        (torch.ones(1, 4), neg, mask, *extra, 0.5),
        test_utils=tests,
    )


def test_second_derivative_is_refused():
    pos, neg = (x.float().requires_grad_() for x in scores('random', 5, 300))
    total = pairwise_surrogate_sum(
        pos, neg, OneSidedHuber(1.0), method='triton'
    )
    total = total.square().sum()
    (grad,) = torch.autograd.grad(total, neg, create_graph=True)
    with pytest.raises(RuntimeError, match='no second derivative'):
        grad.sum().backward()
