"""What the Triton kernels of the exact pairwise sum share.

Imports triton, so import late. Notation: list ``row`` has P positives ``s``; its T = 2P thresholds
are the sorted ``{s_i - tau, s_i}``, float64. Interval ``k`` holds the scores above threshold ``k -
1`` and not above threshold
``k``. Inside an interval a score is described by its distance to the
threshold below it, so nothing cancels, whatever the scores.

Scores are compared in float32 unless they are float64, with thresholds that are rounded down: ``t >
v`` and ``t > round_down(v)`` agree for every float32 ``t``.
"""

import triton
import triton.language as tl

# Infinite scores act as this; see ``surrogates.SCORE_LIMIT``.
_LIMIT = tl.constexpr(1e30)
_TINY = tl.constexpr(1e-30)


@triton.jit
def as_double(bits):
    """A float64 scalar argument: Triton would pass it as float32."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def clamp(x):
    """Within the score limit; NaN stays NaN."""
    x = tl.where(x > _LIMIT, _LIMIT, x)
    return tl.where(x < -_LIMIT, -_LIMIT, x)


@triton.jit
def row_and_part(num_lists):
    """List and place in it of a program of a one-dimensional grid.

    A grid's second dimension ends at 65,535. Lists run fastest: where they
    are the columns of one matrix, neighbours share their memory sectors.
    """
    at = tl.program_id(0)
    return (at % num_lists).to(tl.int64), at // num_lists


@triton.jit
def at_least_tiny(x):
    """A width that can be divided by."""
    return tl.where(x > _TINY, x, _TINY)


@triton.jit
def load_scores(ptr, mask_ptr, at, col, mask_col, N, dtype, HAS_MASK):
    """Clamped scores in the dtype of comparison, and which of them count."""
    use = at < N
    x = tl.load(ptr + at.to(tl.int64) * col, mask=use, other=0)
    if HAS_MASK:
        kept = tl.load(mask_ptr + at.to(tl.int64) * mask_col, mask=use, other=0)
        use = use & (kept != 0)
    return clamp(x.to(dtype)), use


@triton.jit
def load_grid(cut, size, T):
    """Lowest and highest threshold, and grid cells per unit of score.

    The latter is read, not divided out again: all kernels must agree on its last bit, and a float32
    division is not exact on a GPU.
    """
    low = tl.load(cut)
    top = tl.load(cut + tl.maximum(size - 1, 0))
    return low, top, tl.load(cut + T)


@triton.jit
def cell_of(x, low, scale, cells):
    """Grid cell by operations that are monotone, so the look-up is exact."""
    cell = (x - low) * scale
    return tl.where(cell < cells - 1, cell, cells - 1).to(tl.int32)


@triton.jit
def halvings(count):
    """Halvings that leave nothing of that many thresholds to search."""
    steps = count * 0
    left = count
    while left > 0:
        steps += 1
        left = left // 2
    return steps


@triton.jit
def find(t, inside, cut, lut, low, scale, steps, cells):
    """Number of thresholds below each score that is inside.

    Args:
        t: Scores, of the dtype of comparison.
        inside: Which of them lie between the lowest and highest threshold.
        cut: Pointer to the T thresholds, rounded down, and ``scale``.
        lut: Pointer to ``before + 2^16 * within`` of each grid cell.
        low: See :func:`load_grid`, as ``scale``.
        scale: Cells per unit of score.
        steps: Halvings the most crowded cell needs.
        cells: Number of grid cells.
    """
    cell = tl.where(inside, cell_of(t, low, scale, cells), 0)
    entry = tl.load(lut + cell, mask=inside, other=0)
    lo = entry & 0xFFFF
    hi = lo + ((entry >> 16) & 0xFFFF)
    for _ in range(steps):
        open_ = lo < hi
        mid = (lo + hi) // 2
        below = tl.load(cut + mid, mask=open_, other=0) < t
        lo = tl.where(open_ & below, mid + 1, lo)
        hi = tl.where(open_ & (~below), mid, hi)
    return lo


@triton.jit
def beyond(t, hi, lo):
    """``t - (hi + lo)``, right to the last digit in the dtype of ``t``."""
    return (t - hi) - lo
