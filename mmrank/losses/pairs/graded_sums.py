"""Sums over pairs of positives of different relevance.

The one-sided Huber of many positives is summed exactly in O(P sqrt(P)) on a CPU: groups of
neighbours in relevance meet the groups below them by moments of their scores, and themselves by the
matrix of pairs. Else the whole matrix is made, in blocks.
"""

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor

from mmrank.autograd import Function, can_sync, once_differentiable

from .buffers import Buffers
from .surrogates import OneSidedHuber, Surrogate, clamp_infinite
from .tables import column_blocks

# Pairs of positives of one block, each a float64: on a device, and what a CPU's cache holds.
_PAIRS_PER_BLOCK = 2**20
_CACHED_PAIRS = 2**16
# Positives from which moments are faster, and how far scores may be from their median, in units of
# tau: moments of the square lose twice its digits.
_MANY_POSITIVES = 512
_NEAR = 64.0


@torch.no_grad()
def graded_mass(grade: Tensor, mask: Tensor) -> Tensor:
    """(L, P) float64 ``sum_k (u_i - u_k)_+`` of (L, P) relevances u, 0 at padding."""
    ordered, order = torch.where(mask, grade.double(), torch.inf).sort(1)
    number = torch.arange(ordered.size(1), device=grade.device)
    # Summed over the gaps, so that equal relevances have exactly 0; inf - inf is padding's.
    mass = ordered.diff(dim=1, prepend=ordered[:, :1]).mul_(number).cumsum(1)
    return torch.where(mask, torch.empty_like(mass).scatter_(1, order, mass), 0)


def graded_pairs(
    pos: Tensor, mask: Tensor, grade: Tensor, buffers: Buffers
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows i, and (L, rows, P) float64 ``(u_i - u_k)_+`` and ``s_i - s_k``, by blocks.

    Both may be overwritten. Arguments: see :func:`graded_pair_sum`; the first is 0 at padding.
    """
    scores = clamp_infinite(torch.where(mask, pos, 0).double())
    own = scores.unsqueeze(2)
    other = scores.unsqueeze(1)
    better = torch.where(mask, grade.double(), 0).unsqueeze(2)
    worse = torch.where(mask, grade.double(), torch.inf).unsqueeze(1)
    size = _CACHED_PAIRS if can_sync(pos) else _PAIRS_PER_BLOCK
    for part in column_blocks(pos.size(1), max(size // max(pos.numel(), 1), 1)):
        shape = own[:, part].expand(-1, -1, pos.size(1))
        gaps = buffers.like('gaps', shape, own.dtype)
        x = buffers.like('pairs', shape, own.dtype)
        torch.sub(better[:, part], worse, out=gaps).clamp_(min=0)
        yield part, gaps, torch.sub(own[:, part], other, out=x)


def _moments(values: list[Tensor], member: Tensor, group: Tensor) -> Callable:
    """Sums of (P,) values up to (P,) places, over the members of the group that each asks for.

    ``member`` is (G, P) bool; each call returns (len(values), P) sums.
    """
    table = torch.zeros(len(member), len(values), member.size(1) + 1, dtype=values[0].dtype)
    torch.cumsum(torch.stack(values) * member.unsqueeze(1), 2, out=table[..., 1:])
    start = group * table.stride(0) + torch.arange(len(values)).unsqueeze(1) * table.stride(1)
    return lambda place: table.view(-1)[start + place]


def _sums_by_moments(
    pos: Tensor, grade: Tensor, weight: Tensor, tau: float
) -> tuple[Tensor, Tensor] | None:
    """(P,) rows E of :func:`graded_pair_sum` and gradient of ``sum_i w_i E_i``, one-sided Huber.

    None if scores are too far apart.
    """
    y, order = (pos.double() / tau).sort()
    y = y - y[len(y) // 2]
    if not (y[0] >= -_NEAR and y[-1] <= _NEAR):  # or NaN
        return None
    u = grade[order].double()
    w = weight[order]
    number = len(y)
    place = torch.arange(len(y))
    size = int((7 * number) ** 0.5)
    by_grade = u.argsort()
    group = torch.empty_like(by_grade)
    group[by_grade] = place // size
    last = (number - 1) // size

    # Positive i and all k of the groups below: (1 - y_i + y_k)^2 in its window, 1 - 2 (y_i - y_k)
    # above. Both agree to first order where they meet, so ties may be on either side.
    below = group < torch.arange(last + 1).unsqueeze(1)
    low, high = torch.searchsorted(y, torch.stack([y - 1, y + 1]))
    up_to = _moments([torch.ones_like(u), u, y, u * y, y * y, u * y * y], below, group)
    here = up_to(place)
    n, nu, f, fu, q, qu = here - up_to(low)
    n = u * n - nu
    f = u * f - fu
    q = u * q - qu
    m, mu, g, gu, *_ = up_to(number) - here
    m = u * m - mu
    g = u * g - gu
    c = 1 - y
    rows = c * c * n + 2 * c * f + q + (c - y) * m + 2 * g
    slope = -2 * w * (c * n + f + m)
    # Positive k and all i of the groups above.
    above = group > torch.arange(last + 1).unsqueeze(1)
    up_to = _moments([w, w * u, w * y, w * u * y], above, group)
    here = up_to(place)
    n, nu, f, fu = up_to(high) - here
    m, mu, *_ = here
    slope += 2 * ((1 + y) * (nu - u * n) - (fu - u * f) + (mu - u * m))

    # Within the groups.
    padding = (last + 1) * size - number

    def groups(x: Tensor, fill: float = 0.0) -> Tensor:
        return torch.nn.functional.pad(x[by_grade], (0, padding), value=fill).view(-1, size)

    own = groups(y)
    own_weight = groups(w)
    gaps = (groups(u).unsqueeze(2) - groups(u, torch.inf).unsqueeze(1)).clamp_(min=0)
    change = torch.empty_like(gaps)
    terms = OneSidedHuber().terms(own.unsqueeze(2) - own.unsqueeze(1), True, change)
    terms = cast(Tensor, terms).mul_(gaps)
    change *= gaps
    rows[by_grade] += 2 * terms.sum(2).view(-1)[:number]
    inner = torch.bmm(own_weight.unsqueeze(1), change).squeeze(1) - own_weight * change.sum(2)
    slope[by_grade] += 2 * inner.view(-1)[:number]
    out = torch.empty(2, number, dtype=y.dtype)
    out[:, order] = torch.stack([rows, slope / tau])
    return out[0], out[1]


class _GradedPairSum(Function):
    @staticmethod
    def forward(ctx, pos, mask, grade, weight, surrogate):
        many = len(pos) == 1 and pos.size(1) >= _MANY_POSITIVES and can_sync(pos)
        found = None
        if many and surrogate.has_intervals and mask.all():
            found = _sums_by_moments(pos[0], grade[0], weight[0], surrogate.tau)
        if found is not None:
            rows = found[0].unsqueeze(0)
            slope = found[1].unsqueeze(0)
            ctx.save_for_backward(pos, slope)
            ctx.mark_non_differentiable(rows)
            return (weight * rows).sum(1), rows
        rows = torch.zeros_like(weight)
        slope = torch.zeros_like(weight)
        buffers = Buffers()
        for part, gaps, x in graded_pairs(pos, mask, grade, buffers):
            change = buffers.like('slopes', x, x.dtype)
            rows[:, part] = cast(Tensor, surrogate.terms(x, True, change)).mul_(gaps).sum(2)
            change *= gaps
            own = weight[:, part]
            slope[:, part] += own * change.sum(2)
            slope -= torch.bmm(own.unsqueeze(1), change).squeeze(1)
        ctx.save_for_backward(pos, slope.mul_(surrogate.slope_factor))
        rows.mul_(surrogate.value_factor)
        ctx.mark_non_differentiable(rows)
        return (weight * rows).sum(1), rows

    @staticmethod
    @once_differentiable('graded_pair_sum')
    def backward(ctx, grad, _):
        pos, slope = ctx.saved_tensors
        return (grad.unsqueeze(1) * slope).to(pos.dtype), None, None, None, None


def graded_pair_sum(
    pos: Tensor, mask: Tensor, grade: Tensor, weight: Tensor, surrogate: Surrogate
) -> tuple[Tensor, Tensor]:
    """``sum_i w_i E_i`` and ``E_i = sum_k (u_i - u_k)_+ l(s_i - s_k)`` over the positives of lists.

    Both float64: the (L,) sum is differentiable once, in the (L, P) scores ``pos`` alone, the (L,
    P) E have no gradient. ``grade`` and ``weight`` are (L, P) relevances u and weights w, float64,
    ``mask`` is False for padding, where the weight is 0.
    """
    return _GradedPairSum.apply(pos, mask, grade, weight, surrogate)
