"""Cases for the kernels on the CPU, run by test_triton_interval_sums.

Not collected by name: triton must have its interpreter set before it is imported, which only a
process of its own can do.
"""

import os

import pytest
import torch

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.functional.pairwise.triton import sums as host
from research.pairwise_kernels import memory_traffic, size_tuning, verification

assert os.environ.get('TRITON_INTERPRET') == '1'


@pytest.fixture(autouse=True)
def small_programs(monkeypatch):
    """Several programs and copies of the sums even for short lists."""
    sizes = host.LaunchSizes(block=256, tiles=2, gradient_block=256)
    monkeypatch.setattr(host, 'SIZES', sizes)
    torch.manual_seed(0)


run = verification.pair_sum_results
errors = verification.relative_errors


def scores(kind, positives=30, negatives=700):
    return verification.make_scores(kind, positives, negatives)


@pytest.mark.parametrize('tau', [0.01, 1.0])
@pytest.mark.parametrize('kind', ['random', 'tied', 'huge', 'tiny range', 'far apart'])
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
    total, grad_pos, grad_neg = run('triton', *scores('all below'), 1.0)
    assert not total.any()
    assert not grad_pos.any()
    assert not grad_neg.any()


def test_everything_above():
    pos, neg = scores('all below')
    assert max(errors(pos.float() - 40, neg.float(), 1.0)) < 5e-7


def test_masked_strided_lists():
    """The float64 pair matrix beside them is a check of the GPU tool."""
    pos, neg, masks = verification.masked_lists('cpu', 700)
    assert not neg.is_contiguous()
    got = run('triton', pos, neg, 1.0, **masks)
    want = run('intervals', pos, neg, 1.0, **masks)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(('positives', 'negatives'), [(0, 5), (5, 0), (1, 1), (1, 600)])
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


def test_narrow_steps_and_their_transpose():
    assert verification.step_error('cpu', 12, 300, delta=0.05) < 1e-6


def test_special_checks_of_the_gpu_tool():
    """Masks, infinite scores, steps, a repeat and another order."""
    found = list(verification.special_checks('cpu', 12, 300))
    assert len(found) == 5
    assert [result for result in found if not result.passed] == []


def test_checks_of_the_gpu_tool_find_a_wrong_gradient(monkeypatch):
    right = host._gradient
    monkeypatch.setattr(host, '_gradient', lambda *args: right(*args) * (1 + 1e-5))
    result = next(verification.accuracy_checks('cpu', 12, 300))
    assert 9e-6 < result.found < 1.1e-5
    assert not result.passed


@pytest.mark.parametrize(
    ('dtype', 'masked', 'expected'), [(torch.float32, False, 12), (torch.bfloat16, True, 6 + 2)]
)
def test_bytes_through_memory(monkeypatch, dtype, masked, expected):
    """Each score is read twice, its gradient written once, by 8 kernels."""
    sizes = host.LaunchSizes(block=1024, tiles=2, gradient_block=1024)
    monkeypatch.setattr(host, 'SIZES', sizes)
    pos, neg = (x.to(dtype) for x in scores('random', 10, 2**13))
    mask = torch.rand(neg.shape) < 0.5 if masked else None
    found = memory_traffic.step_traffic(pos, neg, 1.0, mask)
    assert found.launches == 8
    assert found.floor == 3 * neg.element_size() * 2**13
    # A start beside a sector, or one more argument, costs a sector or two.
    spare = 4 * memory_traffic.SECTOR / 2**13
    assert expected <= found.per_score(streams=True) <= expected + spare
    # The tables are the same for a million scores.
    tables = found.per_score(streams=False) * 2**13 / 2**20
    assert 0 < tables < 0.1


def test_a_second_pass_over_the_scores_would_be_seen(monkeypatch):
    pos, neg = (x.float() for x in scores('random', 5, 512))
    once = memory_traffic.step_traffic(pos, neg, 1.0)
    forward = host.launch_sums
    monkeypatch.setattr(host, 'launch_sums', lambda *args: forward(*args) and forward(*args))
    twice = memory_traffic.step_traffic(pos, neg, 1.0)
    more = twice.per_score(streams=True) - once.per_score(streams=True)
    assert 4 <= more < 4.3
    assert twice.launches == once.launches + 6


def test_tuning_times_what_it_launches(monkeypatch):
    stages = (
        ('forward', dict(block=(128, 256), warps=(4,))),
        ('backward', dict(gradient_block=(128,), gradient_warps=(4,))),
    )
    monkeypatch.setattr(size_tuning, 'STAGES', stages)
    used = []
    forward = host.launch_sums

    def launch(*args):
        used.append(host.SIZES)
        return forward(*args)

    monkeypatch.setattr(host, 'launch_sums', launch)
    pos, neg = (x.float() for x in scores('random', 5, 300))
    lines = list(size_tuning.tune(pos, neg, 1.0, repeats=1))
    start = host.SIZES
    assert [x.sizes.block for x in lines[:2]] == [256, 128]
    assert {x.block for x in used} == {128, 256}
    assert all(x.milliseconds > 0 for x in lines)
    assert size_tuning.best_sizes(lines) in [x.sizes for x in lines[2:]]
    assert host.SIZES is start


@pytest.mark.slow
@pytest.mark.parametrize('method', ['triton', 'intervals', 'pairs'])
def test_compiles_in_one_graph(method):
    # Long enough for the CPU's grid, whose sizes depend on the data.
    size = 300 if method == 'triton' else 70_000
    pos, neg = (x.float() for x in scores('random', 5, size))
    mask = torch.rand(neg.shape) < 0.5

    def loss(p, n):
        total = pairwise_surrogate_sum(p, n * 2, OneSidedHuber(0.7), neg_mask=mask, method=method)
        return total.square().sum()

    results = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend='aot_eager')):
        p, n = pos.clone().requires_grad_(), neg.clone().requires_grad_()
        value = function(p, n)
        value.backward()
        results.append((value.detach(), p.grad, n.grad))
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)


@pytest.mark.slow
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
        host._gradient, (torch.ones(1, 4), neg, mask, *extra, 0.5), test_utils=tests
    )


def test_second_derivative_is_refused():
    pos, neg = (x.float().requires_grad_() for x in scores('random', 5, 300))
    total = pairwise_surrogate_sum(pos, neg, OneSidedHuber(1.0), method='triton')
    total = total.square().sum()
    (grad,) = torch.autograd.grad(total, neg, create_graph=True)
    with pytest.raises(RuntimeError, match='no second derivative'):
        grad.sum().backward()
