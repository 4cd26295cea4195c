"""Triton kernels that depend on the positives alone: thresholds and tables."""

import triton
import triton.language as tl

from .common import as_double, at_least_tiny, cell_of, clamp

# Widest interval in units of tau that can be part of a window (which is one tau wide, up to
# rounding). A wider one lies between windows.
_WIDE = tl.constexpr(1.5)
# Widest one whose sums fixed point can hold to 2^-20 tau: beyond lie only
# gaps next to infinite scores and the like.
_ENDLESS = tl.constexpr(2.0**30)


@triton.jit
def _load_positives(pos_ptr, mask_ptr, i, P):
    """Float64 scores, +inf for padding and NaN, NaN beyond the end."""
    ok = i < P
    x = tl.load(pos_ptr + i, mask=ok, other=0).to(tl.float64)
    real = tl.load(mask_ptr + i, mask=ok, other=0) != 0
    x = tl.where(real & (x == x), clamp(x), float('inf'))
    return tl.where(ok, x, float('nan'))


@triton.jit
def _round_down(x, dtype: tl.constexpr):
    """Largest number of the dtype of comparison that is not above x."""
    if dtype == tl.float32:
        near = x.to(tl.float32)
        # The next float32 below, by its bits: those of a negative number
        # count up as it falls.
        bits = near.to(tl.int32, bitcast=True)
        lower = tl.where(near > 0, bits - 1, bits + 1)
        lower = tl.where(near == 0, -2147483647, lower)
        lower = lower.to(tl.float32, bitcast=True)
        x = tl.where(near.to(tl.float64) > x, lower, near)
    return x


@triton.jit(do_not_specialize=['P', 'tau_bits'])
def rank_kernel(
    pos_ptr,
    mask_ptr,
    thr_ptr,
    cut_ptr,
    low_ptr,
    high_ptr,
    size_ptr,
    P,
    tau_bits,
    BI: tl.constexpr,
    BK: tl.constexpr,
):
    """Sort the thresholds by counting, and find where each window ends.

    Counting P^2 pairs takes one launch and no exchange between programs. ``cut`` receives the
    thresholds rounded down to the dtype of comparison. Positive i's window are the intervals ``low
    <= k < high``; ``size`` is the number of thresholds that are no padding.
    """
    row = tl.program_id(0)
    line = row.to(tl.int64) * P
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    tau = as_double(tau_bits)
    hi_i = _load_positives(pos_ptr + line, mask_ptr + line, i, P)
    lo_i = hi_i - tau
    low_slot = tl.zeros([BI], tl.int32)
    high_slot = tl.zeros([BI], tl.int32)
    low_end = tl.zeros([BI], tl.int32)
    high_end = tl.zeros([BI], tl.int32)
    real = tl.zeros([BK], tl.int32)
    for begin in range(0, P, BK):
        k = begin + tl.arange(0, BK)
        hi_k = _load_positives(pos_ptr + line, mask_ptr + line, k, P)
        lo_k = hi_k - tau
        real += (hi_k < float('inf')).to(tl.int32)
        before = k[None, :] < i[:, None]
        ll = lo_k[None, :] < lo_i[:, None]
        ll_tie = lo_k[None, :] == lo_i[:, None]
        hh = hi_k[None, :] < hi_i[:, None]
        hh_tie = hi_k[None, :] == hi_i[:, None]
        hl = hi_k[None, :] < lo_i[:, None]
        hl_tie = hi_k[None, :] == lo_i[:, None]
        lh = (lo_k[None, :] <= hi_i[:, None]).to(tl.int32)
        # Equal thresholds go by index, lower ends first: every one of them, padding included, gets
        # a place of its own.
        low_slot += tl.sum((ll | (ll_tie & before)).to(tl.int32) + hl.to(tl.int32), 1)
        high_slot += tl.sum((hh | (hh_tie & before)).to(tl.int32) + lh, 1)
        low_end += tl.sum((ll | ll_tie).to(tl.int32) + (hl | hl_tie).to(tl.int32), 1)
        high_end += tl.sum((hh | hh_tie).to(tl.int32) + lh, 1)
    ok = i < P
    tl.store(thr_ptr + 2 * line + low_slot, lo_i, mask=ok)
    tl.store(thr_ptr + 2 * line + high_slot, hi_i, mask=ok)
    dtype: tl.constexpr = cut_ptr.dtype.element_ty
    cut_ptr += 2 * line + row
    tl.store(cut_ptr + low_slot, _round_down(lo_i, dtype), mask=ok)
    tl.store(cut_ptr + high_slot, _round_down(hi_i, dtype), mask=ok)
    # Padding has its window beyond all intervals: nothing reaches it.
    pad = ~(hi_i < float('inf'))
    tl.store(low_ptr + line + i, tl.where(pad, 2 * P + 1, low_end), mask=ok)
    tl.store(high_ptr + line + i, tl.where(pad, 2 * P + 1, high_end), mask=ok)
    if tl.program_id(1) == 0:
        tl.store(size_ptr + 2 * row, 2 * tl.sum(real, 0))


@triton.jit
def _first_in_cell(cut, cell, size, low, scale, T, cells):
    """How many thresholds lie in lower cells."""
    lo = cell * 0
    hi = lo + size
    left = T
    while left > 0:
        open_ = lo < hi
        mid = (lo + hi) // 2
        x = tl.load(cut + mid, mask=open_, other=0)
        below = cell_of(x, low, scale, cells) < cell
        lo = tl.where(open_ & below, mid + 1, lo)
        hi = tl.where(open_ & (~below), mid, hi)
        left = left // 2
    return lo


@triton.jit(do_not_specialize=['P', 'cells', 'tau_bits'])
def table_kernel(
    thr_ptr, cut_ptr, size_ptr, lut_ptr, tab_ptr, crowd_ptr, P, cells, tau_bits, BLOCK: tl.constexpr
):
    """Look-up table of the grid; (origin, rest, 1 / width) of each interval.

    The grid's cells per unit of score go behind the thresholds in ``cut``. ``crowd`` receives the
    largest number of thresholds in a grid cell. The sign of ``1 / width`` is negative for an
    interval too wide for a window;
    0 marks one too wide for fixed point.
    """
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    T = 2 * P
    cut = cut_ptr + row.to(tl.int64) * (T + 1)
    size = tl.load(size_ptr + 2 * row)
    if tl.program_id(1) * BLOCK < cells:
        low = tl.load(cut)
        top = tl.load(cut + tl.maximum(size - 1, 0))
        scale = cells / at_least_tiny(top - low)
        if tl.program_id(1) == 0:
            tl.store(cut + T, scale)
        first = _first_in_cell(cut, at, size, low, scale, T, cells)
        after = _first_in_cell(cut, at + 1, size, low, scale, T, cells)
        ok = at < cells
        within = tl.where(ok, after - first, 0)
        lut = lut_ptr + row.to(tl.int64) * cells
        tl.store(lut + at, first | (within << 16), mask=ok)
        crowd = tl.max(within, 0).to(tl.int64)
        tl.atomic_max(crowd_ptr + row, crowd, sem='relaxed')

    thr = thr_ptr + row.to(tl.int64) * T
    inner = (at >= 1) & (at < size)
    origin = tl.load(thr + at - 1, mask=(at >= 1) & (at <= size), other=0)
    end = tl.load(thr + at, mask=inner, other=1)
    width = at_least_tiny(tl.where(inner, end - origin, 1))
    by_width = 1 / width
    tau = as_double(tau_bits)
    # tau first: Triton 3.7 does not multiply a constant by a tensor.
    by_width = tl.where(width > tau * _WIDE, -by_width, by_width)
    by_width = tl.where(width > tau * _ENDLESS, 0, by_width)
    tab = tab_ptr + (row.to(tl.int64) * (T + 1) + at) * 4
    ok = at <= T
    near = origin.to(tab_ptr.dtype.element_ty)
    tl.store(tab, near, mask=ok)
    tl.store(tab + 1, origin - near.to(tl.float64), mask=ok)
    tl.store(tab + 2, tl.where(inner, by_width, 1), mask=ok)
