"""Positive scores of a batch, stretched to a vector of fixed length."""

import torch
from torch import Tensor


def interpolate_scores(
    scores: Tensor, length: int, low: float, high: float, mask: Tensor | None = None
) -> Tensor:
    """Scores of a list, or of L lists, stretched to ``length`` points.

    With the n scores of a list in ascending order ``u_1..u_n``, point j of
    the result lies at ``x = j/length`` in interval ``i = floor(n x) + 1`` and is the mean of the
    line from ``u_{i-1}`` to ``u_i`` and the line from ``u_i`` to ``u_{i+1}``. The ends are
    extrapolated: ``u_0 = 2u_1 - u_2`` and ``u_{n+1} = 2u_n - u_{n-1}``, kept within ``[low,
    high]``. Source: SOPRC (NeurIPS 2022), algorithm 2, whose "descending" and ``2u_{n-1}`` are
    misprints.

    Args:
        scores: (n,) float scores in any order, n >= 1; or (L, P), padded.
        length: Number of points V, >= 1; any relation to n is fine.
        low: Smallest value that the extrapolated lower end may take.
        high: Largest value that the extrapolated upper end may take.
        mask: (L, P) bool, False for padding. None: all are real.

    Returns:
        (V,), float64 for float64 scores, else float32; or (L, V) float64, 0 for a list without
        scores. Ascending, without gradient. A list that holds NaN or inf gives NaN.

    Raises:
        ValueError: On shapes that do not fit, one list without a score, ``length`` < 1 or ``low >=
            high``.
        TypeError: If the scores are not of a float dtype.

    Example:
        >>> interpolate_scores(torch.tensor([0.4, 0.2]), 4, -1.0, 1.0)
        tensor([0.1000, 0.2000, 0.3000, 0.4000])
    """
    if not scores.is_floating_point():
        raise TypeError(f'scores must be of a float dtype, got {scores.dtype}; call scores.float()')
    if scores.dim() not in (1, 2) or (scores.dim() == 1 and len(scores) == 0):
        raise ValueError(
            'scores must be (n,) with at least one score, or (lists, scores), '
            f'got shape {tuple(scores.shape)}'
        )
    if mask is not None and mask.shape != scores.shape:
        raise ValueError(
            f'mask must have shape {tuple(scores.shape)} as scores has, got {tuple(mask.shape)}'
        )
    if not (isinstance(length, int) and length >= 1):
        raise ValueError(f'length must be an int >= 1, got {length!r}')
    if not low < high:
        raise ValueError(f'low must be < high, got low={low!r} and high={high!r}')
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    if scores.dim() == 2:
        return _interpolated(scores, mask, length, low, high)
    out = _interpolated(scores[None], mask[None], length, low, high)[0]
    return out.to(torch.promote_types(scores.dtype, torch.float32))


def _interpolated(scores: Tensor, mask: Tensor, length: int, low: float, high: float) -> Tensor:
    """(L, V) float64 points of (L, P) lists."""
    if scores.size(1) == 0:
        return scores.new_zeros(scores.size(0), length, dtype=torch.float64)
    with torch.no_grad():
        count = mask.sum(1, keepdim=True)
        # Padding sorts behind every score; a list with inf or NaN is marked
        # at the end, so what it does to the order is of no account.
        padded = torch.where(mask, scores.double(), torch.inf)
        ascending = padded.sort(dim=1).values
        last = (count - 1).clamp(min=0)
        first_u, last_u = ascending[:, :1], ascending.gather(1, last)
        # A list of one score is constant: its neighbours are itself.
        second_u = ascending.gather(1, last.clamp(max=1))
        before_last_u = ascending.gather(1, (last - 1).clamp(min=0))
        # A score outside the declared range stays the end of its list.
        below = (2 * first_u - second_u).clamp(min=low).minimum(first_u)
        above = (2 * last_u - before_last_u).clamp(max=high).maximum(last_u)
        knots = torch.cat([below, ascending, ascending[:, -1:]], dim=1)
        knots = knots.scatter(1, count + 1, above)

        point = torch.arange(length, device=scores.device) * count
        # Integers decide the interval: no rounding at its borders.
        interval = point.div(length, rounding_mode='floor')
        share = (point - interval * length).double() / length
        left, here, right = (knots.gather(1, interval + shift) for shift in (0, 1, 2))
        out = left.lerp(here, share)
        out = (out + here.lerp(right, share)) / 2
        whole = (scores.isfinite() | ~mask).all(1, keepdim=True)
        out = torch.where(whole, out, torch.nan)
        return torch.where(count > 0, out, 0)
