"""Triton kernels of the backward pass."""

import triton
import triton.language as tl

from .common import as_double, beyond, find, halvings, load_grid, load_scores, row_and_part


@triton.jit(do_not_specialize=['P', 'tau_bits'])
def coefficient_kernel(
    grad_ptr,
    thr_ptr,
    low_ptr,
    high_ptr,
    size_ptr,
    coef_ptr,
    P,
    tau_bits,
    BK: tl.constexpr,
    BI: tl.constexpr,
):
    """(origin, rest, c0, c1) of each interval.

    The gradient of a score in it is ``c0 + c1 (t - origin - rest)``.
    """
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    per_tau = 1 / as_double(tau_bits)
    line = row * P
    K = 2 * P + 1
    thr = thr_ptr + 2 * line
    size = tl.load(size_ptr + 2 * row)
    origin = tl.load(thr + k - 1, mask=(k >= 1) & (k <= size), other=0)
    c0 = tl.zeros([BK], tl.float64)
    c1 = tl.zeros([BK], tl.float64)
    for begin in range(0, P, BI):
        i = begin + tl.arange(0, BI)
        begin_i = tl.load(low_ptr + line + i, mask=i < P, other=K)
        end_i = tl.load(high_ptr + line + i, mask=i < P, other=K)[None, :]
        real = begin_i < K
        lo_i = tl.load(thr + begin_i - 1, mask=real, other=0)[None, :]
        g = tl.load(grad_ptr + line + i, mask=real, other=0)[None, :]
        begin_i = begin_i[None, :]
        window = (k[:, None] >= begin_i) & (k[:, None] < end_i)
        d = (origin[:, None] - lo_i) * per_tau
        value = tl.where(k[:, None] >= end_i, g, 0)
        c0 += tl.sum(tl.where(window, g * d, value), 1)
        c1 += tl.sum(tl.where(window, g, 0), 1)
    out = coef_ptr + (row * K + k) * 4
    ok = k < K
    near = origin.to(coef_ptr.dtype.element_ty)
    tl.store(out, near, mask=ok)
    tl.store(out + 1, origin - near.to(tl.float64), mask=ok)
    tl.store(out + 2, c0 * (2 * per_tau), mask=ok)
    tl.store(out + 3, c1 * (2 * per_tau * per_tau), mask=ok)


@triton.jit(do_not_specialize=['num_lists', 'P', 'cells'])
def gradient_kernel(
    neg_ptr,
    mask_ptr,
    cut_ptr,
    size_ptr,
    lut_ptr,
    coef_ptr,
    out_ptr,
    num_lists,
    N,
    P,
    cells,
    neg_row,
    neg_col,
    mask_row,
    mask_col,
    out_row,
    out_col,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Read every score once more and write its gradient."""
    row, part = row_and_part(num_lists)
    at = part * BLOCK + tl.arange(0, BLOCK)
    dtype: tl.constexpr = cut_ptr.dtype.element_ty
    T = 2 * P
    cut = cut_ptr + row * (T + 1)
    size = tl.load(size_ptr + 2 * row)
    steps = halvings(tl.load(size_ptr + 2 * row + 1))
    low, top, scale = load_grid(cut, size, T)
    t, use = load_scores(
        neg_ptr + row * neg_row,
        mask_ptr + row * mask_row,
        at,
        neg_col,
        mask_col,
        N,
        dtype,
        HAS_MASK,
    )
    above = use & (~(t <= top))
    inside = use & (t > low) & (t <= top)
    lut = lut_ptr + row * cells
    k = find(t, inside, cut, lut, low, scale, steps, cells)
    k = tl.where(above, size, k)
    hit = inside | above
    coef = coef_ptr + row * 4 * (T + 1) + 4 * k
    hi = tl.load(coef, mask=hit, other=0)
    lo = tl.load(coef + 1, mask=hit, other=0)
    c0 = tl.load(coef + 2, mask=hit, other=0)
    c1 = tl.load(coef + 3, mask=hit, other=0)
    grad = tl.where(hit, c0 + c1 * beyond(t, hi, lo), 0)
    tl.store(
        out_ptr + row * out_row + at.to(tl.int64) * out_col,
        grad.to(out_ptr.dtype.element_ty),
        mask=at < N,
    )
