"""AP-Loss, aLRP, Rank & Sort against the loops of their papers."""

import doctest
import importlib
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.functional import (
    alrp_loss,
    ap_loss,
    error_driven_ap,
    piecewise_linear_step,
    rank_sort_loss,
)

BENCHMARKS = Path(__file__).parents[3] / 'tools' / 'benchmarks'
sys.path.insert(0, str(BENCHMARKS))
from per_positive_loops import alrp_loop, ap_loop, rank_sort_loop  # noqa: E402

sys.path.remove(str(BENCHMARKS))

METHODS = ('intervals', 'pairs')


def make_list(positives, negatives, kind='random', ignored=5, seed=0):
    """Logits, targets (qualities for positives) and box errors, float64."""
    g = torch.Generator().manual_seed(seed)
    n = positives + negatives + ignored
    logits = 2 * torch.randn(n, generator=g, dtype=torch.float64)
    quality = torch.rand(n, generator=g, dtype=torch.float64) * 0.9 + 0.1
    targets = torch.zeros(n, dtype=torch.float64)
    targets[:positives] = quality[:positives]
    targets[n - ignored :] = -1
    if kind == 'tied':
        logits, targets = logits.round(), (targets * 4).round() / 4
        targets[:positives].clamp_(min=0.25)
    elif kind == 'huge':
        logits = logits * 1e4
    elif kind == 'tiny range':
        logits = logits * 1e-4
    order = torch.randperm(n, generator=g)
    errors = torch.rand(positives, generator=g, dtype=torch.float64)
    return logits[order], targets[order], errors


def with_gradient(function, logits, *args):
    logits = logits.clone().requires_grad_()
    values = function(logits, *args)
    values = values if isinstance(values, tuple) else (values,)
    grads = [torch.autograd.grad(v, logits, retain_graph=True)[0] for v in values]
    return [v.detach() for v in values], grads


def check(got, expected, rtol=1e-9, atol=1e-11):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, torch.as_tensor(b), rtol=rtol, atol=atol)


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('kind', ['random', 'tied', 'huge', 'tiny range'])
@pytest.mark.parametrize(('pos', 'neg'), [(1, 60), (40, 700), (25, 0)])
class TestAgainstLoops:
    def test_ap(self, pos, neg, kind, method):
        logits, targets, _ = make_list(pos, neg, kind)
        for interpolate in (True, False):
            values, grads = with_gradient(
                lambda x, on=interpolate: ap_loss(x, targets, interpolate=on, method=method), logits
            )
            value, grad = ap_loop(logits, targets, interpolate=interpolate)
            check([*values, *grads], [value, grad])

    def test_alrp(self, pos, neg, kind, method):
        logits, targets, errors = make_list(pos, neg, kind)
        errors.requires_grad_()
        leaf = logits.clone().requires_grad_()
        parts = alrp_loss(leaf, targets, errors, method=method)
        (grad,) = torch.autograd.grad(parts.classification, leaf, retain_graph=True)
        (box_grad,) = torch.autograd.grad(parts.localisation, errors)
        expected = alrp_loop(logits, targets, errors.detach())
        check([*(p.detach() for p in parts), grad, box_grad], expected)

    def test_rank_sort(self, pos, neg, kind, method):
        logits, targets, _ = make_list(pos, neg, kind)
        values, grads = with_gradient(lambda x: rank_sort_loss(x, targets, method=method), logits)
        check([*values, *grads], rank_sort_loop(logits, targets))


scores = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0]), st.floats(-30, 30))
entries = st.lists(
    st.tuples(scores, st.sampled_from([-1.0, 0.0, 0.0, 0.3, 0.3, 0.8, 1.0])), max_size=14
)


@given(entries, st.sampled_from([0.1, 0.5, 1.0, 4.0]))
def test_any_list(entries, delta):
    logits = torch.tensor([x for x, _ in entries], dtype=torch.float64)
    targets = torch.tensor([t for _, t in entries], dtype=torch.float64)
    positives = int((targets > 0).sum())
    errors = torch.linspace(0.1, 0.9, positives, dtype=torch.float64)
    loose = dict(rtol=1e-8, atol=1e-9)
    for method in METHODS:
        how = dict(delta=delta, method=method)
        ap, ap_grad = with_gradient(lambda x, how=how: ap_loss(x, targets, **how), logits)
        rs, rs_grad = with_gradient(lambda x, how=how: rank_sort_loss(x, targets, **how), logits)
        cls, cls_grad = with_gradient(
            lambda x, how=how: alrp_loss(x, targets, errors, **how)[0], logits
        )
        if not positives:
            for x in (*ap, *rs, *cls, *ap_grad, *rs_grad, *cls_grad):
                assert (x == 0).all()
            continue
        check(ap + ap_grad, ap_loop(logits, targets, delta), **loose)
        check(rs + rs_grad, rank_sort_loop(logits, targets, delta), **loose)
        expected = alrp_loop(logits, targets, errors, delta)
        check(cls + cls_grad, (expected[0], expected[2]), **loose)


LOSSES = {
    'ap': lambda x, t: ap_loss(x, t),
    'alrp': lambda x, t: sum(alrp_loss(x, t, torch.full((int((t > 0).sum()),), 0.4))),
    'rank_sort': lambda x, t: sum(rank_sort_loss(x, t)),
}


@pytest.mark.parametrize('name', LOSSES)
class TestEveryLoss:
    def test_incoming_gradient_scales_all(self, name):
        logits, targets, _ = make_list(8, 50)
        grads = []
        for factor in (1.0, -3.0):
            leaf = logits.clone().requires_grad_()
            (factor * LOSSES[name](leaf, targets)).backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(grads[1], -3 * grads[0])
        assert grads[0].abs().sum() > 0

    def test_gradient_pulls_positives_up_as_much_as_it_pushes_down(self, name):
        logits, targets, _ = make_list(8, 50)
        leaf = logits.clone().requires_grad_()
        LOSSES[name](leaf, targets).backward()
        assert abs(leaf.grad.sum()) < 1e-12
        assert (leaf.grad[targets == 0] >= 0).all()
        assert (leaf.grad[targets < 0] == 0).all()

    def test_order_and_shape_do_not_matter(self, name):
        logits, targets, _ = make_list(8, 51)
        order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
        whole = LOSSES[name](logits, targets)
        moved = LOSSES[name](logits[order].view(8, 8).t(), targets[order].view(8, 8).t())
        torch.testing.assert_close(whole, moved)

    def test_half_precision_is_counted_in_float64(self, name):
        logits, targets, _ = make_list(30, 4000)
        for dtype in (torch.bfloat16, torch.float16):
            rough = logits.to(dtype)
            leaf = rough.clone().requires_grad_()
            loss = LOSSES[name](leaf, targets)
            loss.backward()
            exact = LOSSES[name](rough.double(), targets)
            assert loss.dtype == torch.float32
            assert leaf.grad.dtype == dtype
            torch.testing.assert_close(loss.double(), exact.double())

    def test_integer_and_boolean_targets(self, name):
        logits, targets, _ = make_list(6, 30, ignored=0)
        hard = targets > 0
        for labels in (hard, hard.int(), hard.long()):
            loss = LOSSES[name](logits, labels)
            torch.testing.assert_close(loss, LOSSES[name](logits, hard.double()))

    def test_empty_and_one_sided_lists(self, name):
        for n, label in ((0, 0), (3, 0), (3, -1)):
            leaf = torch.randn(n, requires_grad=True)
            loss = LOSSES[name](leaf, torch.full((n,), label))
            loss.backward()
            assert loss == 0
            assert (leaf.grad == 0).all()
        loss = LOSSES[name](torch.randn(3), torch.ones(3))
        assert loss.isfinite()

    def test_infinite_scores_stay_finite(self, name):
        inf = float('inf')
        leaf = torch.tensor([inf, 0.0, -inf, inf, -inf], requires_grad=True)
        loss = LOSSES[name](leaf, torch.tensor([1, 1, 1, 0, 0]))
        loss.backward()
        assert loss.isfinite()
        assert leaf.grad.isfinite().all()

    def test_nan_is_not_hidden(self, name):
        scores = torch.tensor([0.0, float('nan'), 1.0])
        assert LOSSES[name](scores, torch.tensor([1, 1, 0])).isnan()
        assert LOSSES[name](scores, torch.tensor([1, 0, 0])).isnan()

    def test_wrong_input(self, name):
        with pytest.raises(TypeError, match='float dtype'):
            LOSSES[name](torch.tensor([1, 2]), torch.tensor([1, 0]))
        with pytest.raises(ValueError, match='one shape'):
            LOSSES[name](torch.zeros(3), torch.ones(2))

    def test_second_derivative_is_refused(self, name):
        leaf = torch.randn(6, dtype=torch.float64, requires_grad=True)
        loss = LOSSES[name](leaf, torch.tensor([1, 1, 1, 0, 0, 0]))
        (grad,) = torch.autograd.grad(loss, leaf, create_graph=True)
        with pytest.raises(RuntimeError):
            grad.sum().backward()


def test_several_padded_lists_equal_one_by_one():
    lists = [make_list(p, n, seed=p) for p, n in ((3, 50), (0, 40), (7, 20))]
    width, depth = 7, 62
    pos = torch.zeros(3, width, dtype=torch.float64)
    neg = torch.zeros(3, depth, dtype=torch.float64)
    pos_mask = torch.zeros(3, width, dtype=torch.bool)
    neg_mask = torch.zeros(3, depth, dtype=torch.bool)
    for row, (logits, targets, _) in enumerate(lists):
        p, n = logits[targets > 0], logits[targets == 0]
        pos[row, : len(p)], pos_mask[row, : len(p)] = p, True
        neg[row, : len(n)], neg_mask[row, : len(n)] = n, True
    for method in METHODS:
        got = error_driven_ap(pos, neg, pos_mask=pos_mask, neg_mask=neg_mask, method=method)
        alone = torch.stack([ap_loss(x, t) for x, t, _ in lists])
        torch.testing.assert_close(got, alone)


def test_many_positives_need_several_blocks_of_pairs(monkeypatch):
    from mmrank.functional.ranking.error_driven import rank_sort

    logits, targets, _ = make_list(50, 100)
    whole = with_gradient(lambda x: rank_sort_loss(x, targets), logits)
    monkeypatch.setattr(rank_sort, '_PAIRS_PER_BLOCK', 350)
    parts = with_gradient(lambda x: rank_sort_loss(x, targets), logits)
    check(parts[0] + parts[1], whole[0] + whole[1])


def test_sorted_by_quality_has_no_sorting_error():
    quality = torch.linspace(0.2, 0.9, 8)
    logits = 5 * torch.arange(8.0)
    assert rank_sort_loss(logits, quality).sorting.abs() < 1e-7
    assert rank_sort_loss(-logits, quality).sorting > 0.1


def test_ap_loss_is_one_minus_ap_for_well_separated_scores():
    from mmrank.functional import average_precision

    g = torch.Generator().manual_seed(3)
    scores = 10 * torch.randperm(200, generator=g).double()
    positive = torch.rand(200, generator=g) < 0.2
    loss = ap_loss(scores, positive, delta=1.0, interpolate=False)
    torch.testing.assert_close(1 - loss, average_precision(scores, positive))


def test_a_box_error_of_the_wrong_length():
    with pytest.raises(ValueError, match=r'box_errors must have .* \(1,\)'):
        alrp_loss(torch.zeros(2), torch.tensor([1, 0]), torch.zeros(2))


def test_the_step():
    x = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0, 9.0])
    expected = torch.tensor([0.0, 0.0, 0.5, 0.75, 1.0, 1.0])
    torch.testing.assert_close(piecewise_linear_step(x, 1.0), expected)
    for delta in (0, -1.0, float('nan')):
        with pytest.raises(ValueError, match='delta must be > 0'):
            ap_loss(torch.zeros(2), torch.tensor([1, 0]), delta=delta)


@pytest.mark.parametrize('module', ['ap_loss', 'alrp_loss', 'rank_sort'])
def test_docstring_examples(module):
    module = importlib.import_module(f'mmrank.functional.ranking.error_driven.{module}')
    results = doctest.testmod(module, extraglobs={'torch': torch})
    assert results.attempted
    assert not results.failed


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
@pytest.mark.parametrize('name', LOSSES)
def test_on_a_gpu(name, dtype):
    logits, targets, _ = make_list(40, 200_000)
    logits = logits.to(dtype)
    results = []
    for device in ('cpu', 'cuda'):
        leaf = logits.to(device).requires_grad_()
        labels = targets.to(device)
        if name == 'alrp':
            errors = torch.full((40,), 0.4, device=device)
            loss = sum(alrp_loss(leaf, labels, errors))
        else:
            loss = LOSSES[name](leaf, labels)
        loss.backward()
        results.append((loss.detach().cpu(), leaf.grad.cpu()))
    check(results[1], results[0], rtol=1e-3, atol=1e-6)
