"""AP-Loss, aLRP, Rank & Sort as their papers define them: a loop over positives; DR-Loss."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import summed_by

from mmrank.functional import alrp_loss, ap_loss, dr_loss, rank_sort_loss


def _step(x, delta):
    return (x / (2 * delta) + 0.5).clamp(0, 1)


def _split(logits, targets):
    return logits[targets > 0], logits[targets == 0]


def _join(logits, targets, pos_grad, neg_grad):
    grad = torch.zeros_like(logits)
    grad[targets > 0] = pos_grad / len(pos_grad)
    grad[targets == 0] = neg_grad / len(pos_grad)
    return grad


def ap_loop(logits, targets, delta=1.0, interpolate=True):
    """Interpolated AP-Loss and its gradient; there must be a positive."""
    pos, neg = _split(logits, targets)
    pos_grad, neg_grad = torch.zeros_like(pos), torch.zeros_like(neg)
    best, total = 0.0, 0.0
    for i in pos.argsort():
        among = _step(pos - pos[i], delta)
        among[i] = 0
        above = _step(neg - pos[i], delta)
        rank = 1 + among.sum() + above.sum()
        precision = 1 - above.sum() / rank
        best = torch.maximum(precision, torch.as_tensor(best))
        used = best if interpolate else precision
        total += 1 - used
        pos_grad[i] = used - 1
        if precision < 1:
            neg_grad += above / rank * ((1 - used) / (1 - precision))
    return total / len(pos), _join(logits, targets, pos_grad, neg_grad)


def alrp_loop(logits, targets, box_errors, delta=1.0, eps=1e-5):
    """Both parts of aLRP and the gradients by logits and box errors."""
    pos, neg = _split(logits, targets)
    pos_grad, neg_grad = torch.zeros_like(pos), torch.zeros_like(neg)
    box_grad = torch.zeros_like(pos)
    classification = localisation = 0.0
    for i in range(len(pos)):
        among = _step(pos - pos[i], delta)
        among[i] = 0
        above = _step(neg - pos[i], delta)
        false_positives = above.sum()
        rank = 1 + among.sum() + false_positives
        classification += false_positives / rank
        box_share = among / rank
        box_share[i] = 1 / rank
        box_grad += box_share
        localisation += (box_share * box_errors).sum()
        if false_positives > eps:
            error = (false_positives + (among * box_errors).sum()) / rank
            pos_grad[i] = -error
            neg_grad += error * above / false_positives
    n = len(pos)
    grad = _join(logits, targets, pos_grad, neg_grad)
    return classification / n, localisation / n, grad, box_grad / n


def rank_sort_loop(logits, targets, delta=0.5, eps=1e-10):
    """Both parts of Rank & Sort and the gradient of each."""
    pos, neg = _split(logits, targets)
    quality = targets[targets > 0]
    neg_grad, no_grad = torch.zeros_like(neg), torch.zeros_like(neg)
    rank_grad, sort_grad = torch.zeros_like(pos), torch.zeros_like(pos)
    ranking = sorting = 0.0
    for i in range(len(pos)):
        among = _step(pos - pos[i], delta)
        above = _step(neg - pos[i], delta)
        false_positives = above.sum()
        error = false_positives / (among.sum() + false_positives)
        ranking += error
        if false_positives > eps:
            rank_grad[i] -= error
            neg_grad += error * above / false_positives
        in_order = among * (quality >= quality[i])
        missorted = among * (quality < quality[i])
        current = (among * (1 - quality)).sum() / among.sum()
        target = (in_order * (1 - quality)).sum() / in_order.sum()
        sorting += current - target
        if missorted.sum() > eps:
            sort_grad[i] -= current - target
            sort_grad += (current - target) * missorted / missorted.sum()
    n = len(pos)
    return (
        ranking / n,
        sorting / n,
        _join(logits, targets, rank_grad, neg_grad),
        _join(logits, targets, sort_grad, no_grad),
    )


def with_gradient(function, logits, *args):
    logits = logits.clone().requires_grad_()
    values = function(logits, *args)
    values = values if isinstance(values, tuple) else (values,)
    grads = [torch.autograd.grad(v, logits, retain_graph=True)[0] for v in values]
    return [v.detach() for v in values], grads


def check(got, expected):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, torch.as_tensor(b), rtol=1e-8, atol=1e-9)


def check_against_loops(logits, targets, errors, method, delta):
    """Values and gradients of the three; with their own half widths of the step, or one."""
    settings = {} if delta is None else dict(delta=delta)
    how = dict(settings, mask=targets >= 0)
    with summed_by(method):
        for interpolate in (True, False):
            values, grads = with_gradient(
                lambda x, on=interpolate: ap_loss(x, targets, interpolate=on, **how), logits
            )
            expected = ap_loop(logits, targets, interpolate=interpolate, **settings)
            check(values + grads, expected)
        values, grads = with_gradient(lambda x: rank_sort_loss(x, targets, **how), logits)
        check(values + grads, rank_sort_loop(logits, targets, **settings))
        ranked, grads = with_gradient(lambda x: alrp_loss(x, targets, errors, **how)[0], logits)
        boxed, box_grads = with_gradient(lambda x: alrp_loss(logits, targets, x, **how)[1], errors)
    expected = alrp_loop(logits, targets, errors[targets > 0], **settings)
    check([*ranked, *boxed, *grads, box_grads[0][targets > 0]], expected)
    assert not box_grads[0][targets <= 0].any()


scores = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0]), st.floats(-30, 30))
entries = st.lists(
    st.tuples(scores, st.sampled_from([-1.0, 0.0, 0.0, 0.3, 0.3, 0.8, 1.0])), max_size=14
).filter(lambda xs: any(target > 0 for _, target in xs))


@given(
    entries,
    st.sampled_from([None, 0.1, 0.5, 1.0, 4.0]),
    st.sampled_from(['intervals', 'pairs']),
    st.sampled_from([1.0, 1e4, 1e-4]),
    st.sampled_from([0, 0, 200]),
)
def test_any_list(entries, delta, method, scale, negatives):
    """Also with many negatives more, and of huge and nearly equal scores."""
    logits, targets = torch.tensor(entries, dtype=torch.float64).t()
    logits = scale * torch.cat([logits, torch.linspace(-30, 30, negatives).double()])
    targets = torch.cat([targets, torch.zeros(negatives).double()])
    errors = torch.linspace(0.1, 0.9, len(logits), dtype=torch.float64)
    check_against_loops(logits, targets, errors, method, delta)


NEG_LAMBDA = 0.1 / math.log(3.5)


def brute_force(pos, neg, lam_pos=1.0, lam_neg=NEG_LAMBDA):
    """Equation by equation in plain Python floats, on probabilities; nothing to rank is no loss."""
    if not pos and not neg:
        return 0.0

    def weighted(values, lam):
        weights = [math.exp(v / lam) for v in values]
        pairs = zip(weights, values)
        return sum(w * v for w, v in pairs) / sum(weights)

    low = weighted(pos, -lam_pos) if pos else 1.0
    high = weighted(neg, lam_neg) if neg else 0.0
    return 4 / 6 * math.log1p(math.exp(6 * (high - low + 0.5)))


logits = st.floats(-12, 12)


@given(st.lists(logits, max_size=6), st.lists(logits, max_size=9))
def test_equals_brute_force(pos, neg):
    x = torch.tensor(pos + neg, dtype=torch.float64)
    targets = torch.tensor([1] * len(pos) + [0] * len(neg))
    probabilities = x.sigmoid().tolist()
    expected = brute_force(probabilities[: len(pos)], probabilities[len(pos) :])
    assert dr_loss(x, targets).item() == pytest.approx(expected, rel=1e-9)
