"""Checks of the Triton kernels: on a GPU, or tiny ones in the interpreter.

The reference is the float64 pair matrix in plain torch.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.functional.ranking.error_driven.update import StepSums

#: Kinds of scores, see :func:`make_scores`.
KINDS = ('random', 'tied', 'huge', 'tiny range', 'far apart', 'all below', 'all above')
#: Largest error of sums and gradients, relative to the largest entry. Half precision rounds the
#: gradient of a score to its own dtype.
LIMITS = {
    torch.float32: 5e-7,
    torch.float64: 1e-11,
    torch.bfloat16: torch.finfo(torch.bfloat16).eps,
    torch.float16: torch.finfo(torch.float16).eps,
}


class CheckResult(NamedTuple):
    """What one check found.

    Attributes:
        name: What was checked.
        found: A figure, such as the largest error.
        limit: What the figure must not exceed.
    """

    name: str
    found: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether it holds; NaN does not."""
        return self.found <= self.limit


class Results(NamedTuple):
    """Sums and both gradients, the positives weighted unequally."""

    total: Tensor
    grad_pos: Tensor
    grad_neg: Tensor


def make_scores(
    kind: str, positives: int, negatives: int, device: str = 'cpu'
) -> tuple[Tensor, Tensor]:
    """One list of float64 scores.

    Args:
        kind: One of :data:`KINDS`.
        positives: How many.
        negatives: How many, at least 100.
        device: Where.

    Returns:
        (1, positives) and (1, negatives) scores.
    """
    double = dict(dtype=torch.float64, device=device)
    pos = torch.randn(1, positives, **double)
    neg = torch.randn(1, negatives, **double) - 1
    if kind == 'tied':
        return (pos * 2).round() / 2, (neg * 2).round() / 2
    if kind == 'huge':
        return 1e4 * pos, 1e4 * neg
    if kind == 'tiny range':
        return 1 + 1e-4 * pos, 1 + 1e-4 * neg
    if kind == 'far apart':
        pos[0, 0] = 1e6
        neg[0, :100] += torch.logspace(0, 6, 100, **double)
    if kind == 'all below':
        neg -= 20
    if kind == 'all above':
        neg += 20
    return pos, neg


def pair_sum_results(
    method: str, pos: Tensor, neg: Tensor, tau: float, **masks: Tensor | None
) -> Results:
    """Forward and backward of the pair sum.

    Args:
        method: See :func:`pairwise_surrogate_sum`.
        pos: (L, P) scores of the positives.
        neg: (L, N) scores of the negatives, any strides.
        tau: Margin, > 0.
        **masks: ``pos_mask`` and ``neg_mask``.
    """
    pos = pos.detach().clone().requires_grad_()
    neg = neg.detach().requires_grad_()
    total = pairwise_surrogate_sum(pos, neg, OneSidedHuber(tau), method=method, **masks)
    weight = torch.linspace(0.5, 1.5, pos.size(1), dtype=torch.float64, device=pos.device)
    grads = torch.autograd.grad((total * weight).sum(), (pos, neg))
    return Results(total.detach(), *grads)


def relative_errors(pos: Tensor, neg: Tensor, tau: float, **masks: Tensor | None) -> list[float]:
    """Largest errors relative to the largest entry, and the dtypes kept."""
    got = pair_sum_results('triton', pos, neg, tau, **masks)
    want = pair_sum_results('pairs', pos.double(), neg.double(), tau, **masks)
    if (got.grad_pos.dtype, got.grad_neg.dtype) != (pos.dtype, neg.dtype):
        return [float('inf')]
    return [
        ((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
        for a, b in zip(got, want)
    ]


def unequal_bits(one: Results, two: Results) -> int:
    """How many of the three tensors differ in a bit."""
    return sum(not torch.equal(a, b) for a, b in zip(one, two))


def accuracy_checks(device: str, positives: int, negatives: int) -> Iterator[CheckResult]:
    """Every kind of scores in float32, random ones in every dtype."""
    for dtype, limit in LIMITS.items():
        for kind in KINDS if dtype == torch.float32 else KINDS[:1]:
            scores = make_scores(kind, positives, negatives, device)
            pos, neg = (x.to(dtype) for x in scores)
            name = str(dtype).removeprefix('torch.')
            yield CheckResult(
                f'{kind} scores, {name}, error', max(relative_errors(pos, neg, 1.0)), limit
            )


def masked_lists(device: str, width: int) -> tuple[Tensor, Tensor, dict]:
    """Four padded lists of columns; padding may hold anything."""
    pos = torch.randn(4, 9, device=device)
    neg = torch.randn(width, 4, device=device).t()
    pos_mask = torch.rand(4, 9, device=device) < 0.6
    neg_mask = torch.rand(width, 4, device=device).t() < 0.5
    pos_mask[1], neg_mask[2] = False, False
    pos = torch.where(pos_mask, pos, float('nan'))
    neg = torch.where(neg_mask, neg, 1e9).t().contiguous().t()
    return pos, neg, dict(pos_mask=pos_mask, neg_mask=neg_mask)


def _masked_error(device: str, width: int) -> float:
    pos, neg, masks = masked_lists(device, width)
    got = pair_sum_results('triton', pos, neg, 1.0, **masks)
    want = pair_sum_results('pairs', pos, neg.double(), 1.0, **masks)
    if got.total[~masks['pos_mask']].any():
        return float('inf')
    if got.grad_neg[~masks['neg_mask']].any():
        return float('inf')
    return max(
        ((a.double() - b.double()).abs().max() / b.abs().max()).item() for a, b in zip(got, want)
    )


def _infinite_and_nan(device: str) -> float:
    """How many statements about infinite and NaN scores do not hold."""
    inf, nan = float('inf'), float('nan')

    def total(pos, neg):
        scores = (torch.tensor([x], device=device) for x in (pos, neg))
        return pair_sum_results('triton', *scores, 1.0)

    outer = total([0.0, inf], [-inf, -inf, 0.5])
    return sum(
        not true
        for true in (
            (outer.total[0] - outer.total.new_tensor([2.0, 0])).abs().max() < 1e-6,
            outer.grad_neg.isfinite().all(),
            total([0.0], [inf, 0.0]).total.item() > 1e29,
            total([0.0, 1.0], [nan, 0.0]).total.isnan().all(),
            total([nan, 1.0], [0.0, 2.0]).total[0, 1].item() == 3,
        )
    )


def step_error(device: str, positives: int, negatives: int, delta: float = 0.5) -> float:
    """Error of the counts that AP-Loss, aLRP and Rank & Sort require."""
    scores = make_scores('random', positives, negatives, device)
    pos, neg = (x.float() for x in scores)
    mask = torch.ones_like(pos, dtype=torch.bool)
    weight = torch.rand(pos.shape, dtype=torch.float64, device=device)
    results = []
    for method in ('triton', 'pairs'):
        steps = StepSums(delta, method)
        count, extra = steps.count(pos, mask, neg, None)
        results.append((count, steps.spread(weight, neg, *extra)))
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*results))


def special_checks(device: str, positives: int, negatives: int) -> Iterator[CheckResult]:
    """Masks and strides, infinite scores, steps, and equal bits."""
    yield CheckResult('masked lists of columns, error', _masked_error(device, negatives), 5e-7)
    yield CheckResult('infinite and NaN scores, failures', _infinite_and_nan(device), 0)
    yield CheckResult(
        'counts of AP-Loss and their transpose, error',
        step_error(device, positives, negatives),
        1e-6,
    )
    scores = make_scores('random', positives, negatives, device)
    pos, neg = (x.float() for x in scores)
    first = pair_sum_results('triton', pos, neg, 1.0)
    yield CheckResult(
        'repeated, tensors that differ in a bit',
        max(unequal_bits(first, pair_sum_results('triton', pos, neg, 1.0)) for _ in range(2)),
        0,
    )
    # The sum of what lies above all positives depends on the order.
    neg = neg.clamp(max=pos.max().item())
    order = torch.randperm(negatives, device=device)
    first = pair_sum_results('triton', pos, neg, 1.0)
    other = pair_sum_results('triton', pos, neg[:, order], 1.0)
    yield CheckResult(
        'another order of the scores, tensors that differ in a bit',
        unequal_bits(first._replace(grad_neg=first.grad_neg[:, order]), other),
        0,
    )


def captured(step: Callable[[], object]) -> tuple[Callable[[], None], object]:
    """A step as one replay of a CUDA graph, and what it returned."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph.replay, result


def device_checks(positives: int, negatives: int) -> Iterator[CheckResult]:
    """What only a GPU can show: no waiting, replay, the compiler."""
    scores = make_scores('random', positives, negatives, 'cuda')
    pos, neg = (x.float() for x in scores)

    def step():
        return pair_sum_results('triton', pos, neg, 1.0)

    step()
    torch.cuda.set_sync_debug_mode('error')
    try:
        step()
        waits = 0
    except RuntimeError:
        waits = 1
    finally:
        torch.cuda.set_sync_debug_mode('default')
    yield CheckResult('the host waits for the device', waits, 0)
    replay, got = captured(step)
    pos += torch.randn_like(pos)
    neg *= 1.5
    replay()
    yield CheckResult(
        'replayed CUDA graph on new scores, tensors that differ in a bit',
        unequal_bits(got, step()),
        0,
    )
    compiled = torch.compile(
        lambda p, n: pairwise_surrogate_sum(p, n, OneSidedHuber(1.0), method='triton'),
        fullgraph=True,
    )
    yield CheckResult(
        'compiled in one graph, sums differ in a bit',
        int(not torch.equal(compiled(pos, neg), step().total)),
        0,
    )


def all_checks(device: str, positives: int, negatives: int) -> Iterator[CheckResult]:
    """Every check that the device allows.

    Args:
        device: ``'cuda'``, or ``'cpu'`` with triton's interpreter.
        positives: Of a list.
        negatives: Of a list, at least 100.
    """
    torch.manual_seed(0)
    yield from accuracy_checks(device, positives, negatives)
    yield from special_checks(device, positives, negatives)
    if device == 'cuda':
        yield from device_checks(positives, negatives)
