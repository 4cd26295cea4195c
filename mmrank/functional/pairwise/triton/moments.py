"""Triton kernels of the forward pass: moments of the scores, then the sums.

What is added up over the scores are whole numbers (fixed point, relative to the width of the
interval): integer sums do not depend on the order, so the result is the same bits in every run
although thousands of programs add at once. Every other loop has a fixed order. The exception is
what lies between two positives over 2^30 tau apart, which fixed point cannot hold.
"""

import triton
import triton.language as tl

from .common import as_double, beyond, find, halvings, load_grid, load_scores, row_and_part


@triton.jit(do_not_specialize=['num_lists', 'P', 'cells', 'copies', 'parts', 'tau_bits'])
def moment_kernel(
    neg_ptr,
    mask_ptr,
    cut_ptr,
    size_ptr,
    lut_ptr,
    tab_ptr,
    crowd_ptr,
    sum_ptr,
    float_ptr,
    top_ptr,
    num_lists,
    N,
    P,
    cells,
    copies,
    parts,
    neg_row,
    neg_col,
    mask_row,
    mask_col,
    tau_bits,
    HAS_MASK: tl.constexpr,
    FRACTION: tl.constexpr,
    COUNT_AT: tl.constexpr,
    SQUARE: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
):
    """Read every score once and add it to the moments of its interval.

    ``FRACTION`` and ``SQUARE`` are the binary digits kept of a score's place in its interval, in
    [0, 1], and of its square. The count shares a word
    with the place, from bit ``COUNT_AT``. An interval too wide for a window needs no squares: its
    second word holds the next ``SQUARE`` digits of the place. ``WORDS`` = 3 keeps those for every
    interval. One too wide for
    fixed point has a float64 in the second word: ``float_ptr`` is the same memory.
    """
    row, part = row_and_part(num_lists)
    dtype: tl.constexpr = cut_ptr.dtype.element_ty
    T = 2 * P
    cut = cut_ptr + row * (T + 1)
    lut = lut_ptr + row * cells
    tab = tab_ptr + row * 4 * (T + 1)
    size = tl.load(size_ptr + 2 * row)
    low, top, scale = load_grid(cut, size, T)
    top_hi = tl.load(tab + 4 * size)
    top_lo = tl.load(tab + 4 * size + 1)
    steps = halvings(tl.load(crowd_ptr + row))
    copy = (row * copies + part % copies) * (T + 1) * WORDS
    sums, floats = sum_ptr + copy, float_ptr + copy
    above_count = tl.zeros([BLOCK], tl.int32)
    above_sum = tl.zeros([BLOCK], tl.float64)
    first = part * TILES * BLOCK
    for begin in range(first, tl.minimum(first + TILES * BLOCK, N), BLOCK):
        t, use = load_scores(
            neg_ptr + row * neg_row,
            mask_ptr + row * mask_row,
            begin + tl.arange(0, BLOCK),
            neg_col,
            mask_col,
            N,
            dtype,
            HAS_MASK,
        )
        # NaN counts as above: it reaches every sum.
        above = use & (~(t <= top))
        inside = use & (t > low) & (t <= top)
        above_count += above.to(tl.int32)
        over = tl.where(above, beyond(t, top_hi, top_lo), 0)
        above_sum += over.to(tl.float64)

        k = find(t, inside, cut, lut, low, scale, steps, cells)
        hi = tl.load(tab + 4 * k, mask=inside, other=0)
        lo = tl.load(tab + 4 * k + 1, mask=inside, other=0)
        by_width = tl.load(tab + 4 * k + 2, mask=inside, other=1)
        over = tl.where(inside, beyond(t, hi, lo), 0)
        place = over * tl.abs(by_width)
        fine = place * (1 << FRACTION)
        whole = tl.floor(fine + 0.5)
        rest = fine - whole
        at = sums + k * WORDS
        word = whole.to(tl.int64) + (1 << COUNT_AT)
        tl.atomic_add(at, word, mask=inside, sem='relaxed')
        second = tl.where(by_width > 0, place * place, rest)
        word = tl.floor(second * (1 << SQUARE) + 0.5).to(tl.int64)
        finite = inside & (by_width != 0)
        tl.atomic_add(at + 1, word, mask=finite, sem='relaxed')
        tl.atomic_add(
            floats + k * WORDS + 1,
            over.to(tl.float64),
            mask=inside & (by_width == 0),
            sem='relaxed',
        )
        if WORDS == 3:
            word = tl.floor(rest * (1 << SQUARE) + 0.5).to(tl.int64)
            tl.atomic_add(at + 2, word, mask=inside, sem='relaxed')
    out = top_ptr + 2 * (row * parts + part)
    tl.store(out, tl.sum(above_count, 0).to(tl.float64))
    tl.store(out + 1, tl.sum(above_sum, 0) / as_double(tau_bits))


@triton.jit(do_not_specialize=['P', 'copies', 'parts', 'tau_bits'])
def collect_kernel(
    sum_ptr,
    float_ptr,
    top_ptr,
    size_ptr,
    tab_ptr,
    crowd_ptr,
    moment_ptr,
    P,
    copies,
    parts,
    tau_bits,
    FRACTION: tl.constexpr,
    COUNT_AT: tl.constexpr,
    SQUARE: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the copies up: count, sum of u, sum of u^2 of each interval.

    ``u`` is a score's distance to the threshold below, in units of tau.
    """
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    K = 2 * P + 1
    ok = k < K
    tau = as_double(tau_bits)
    by_width = tl.load(tab_ptr + (row * K + k) * 4 + 2, mask=ok, other=1)
    count = tl.zeros([BLOCK], tl.float64)
    place = tl.zeros([BLOCK], tl.float64)
    second = tl.zeros([BLOCK], tl.float64)
    rest = tl.zeros([BLOCK], tl.float64)
    endless = tl.zeros([BLOCK], tl.float64)
    is_endless = by_width == 0
    for copy in range(copies):
        line = ((row * copies + copy) * K + k) * WORDS
        at = sum_ptr + line
        word = tl.load(at, mask=ok, other=0)
        endless += tl.load(float_ptr + line + 1, mask=is_endless, other=0)
        high = word >> COUNT_AT
        count += high.to(tl.float64)
        place += (word - (high << COUNT_AT)).to(tl.float64)
        second += tl.load(at + 1, mask=ok, other=0).to(tl.float64)
        if WORDS == 3:
            rest += tl.load(at + 2, mask=ok, other=0).to(tl.float64)
    narrow = by_width > 0
    if WORDS == 2:
        rest = tl.where(narrow, 0, second)
    # 1 / width as it was rounded is what the places were multiplied by.
    by_width = tl.where(is_endless, 1, tl.abs(by_width))
    width = 1 / by_width.to(tl.float64) / tau
    first = (place + rest / (1 << SQUARE)) / (1 << FRACTION) * width
    second = second / (1 << SQUARE) * width * width
    second = tl.where(narrow, second, 0)
    first = tl.where(is_endless, endless / tau, first)

    size = tl.load(size_ptr + 2 * row)
    above_count = tl.zeros([BLOCK], tl.float64)
    above_sum = tl.zeros([BLOCK], tl.float64)
    for begin in range(0, parts, BLOCK):
        part = begin + tl.arange(0, BLOCK)
        at = top_ptr + 2 * (row * parts + part)
        above_count += tl.load(at, mask=part < parts, other=0)
        above_sum += tl.load(at + 1, mask=part < parts, other=0)
    count = tl.where(k == size, tl.sum(above_count, 0), count)
    first = tl.where(k == size, tl.sum(above_sum, 0), first)
    out = moment_ptr + row * 3 * K + k
    tl.store(out, count, mask=ok)
    tl.store(out + K, first, mask=ok)
    tl.store(out + 2 * K, second, mask=ok)
    if tl.program_id(1) == 0:
        # Kept for the backward pass, when the sums are gone.
        tl.store(size_ptr + 2 * row + 1, tl.load(crowd_ptr + row))


@triton.jit(do_not_specialize=['P', 'tau_bits'])
def evaluate_kernel(
    pos_ptr,
    moment_ptr,
    thr_ptr,
    low_ptr,
    high_ptr,
    size_ptr,
    total_ptr,
    slope_ptr,
    P,
    tau_bits,
    BI: tl.constexpr,
    BK: tl.constexpr,
):
    """Sum of the surrogate over all intervals, and its slope by s.

    With ``d`` the distance from the window's lower end to the interval's, a score in the window
    adds ``(d + u)^2``; one above it ``1 + 2 (e + u)``, ``e`` counted from the window's upper end.
    """
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    in_i = i < P
    per_tau = 1 / as_double(tau_bits)
    line = row * P
    K = 2 * P + 1
    thr = thr_ptr + 2 * line
    begin_i = tl.load(low_ptr + line + i, mask=in_i, other=K)
    end_i = tl.load(high_ptr + line + i, mask=in_i, other=K)
    real = begin_i < K
    lo_i = tl.load(thr + begin_i - 1, mask=real, other=0)[:, None]
    hi_i = tl.load(thr + end_i - 1, mask=real, other=0)[:, None]
    size = tl.load(size_ptr + 2 * row)
    total = tl.zeros([BI], tl.float64)
    slope = tl.zeros([BI], tl.float64)
    for begin in range(1, size + 1, BK):
        k = begin + tl.arange(0, BK)
        in_k = k <= size
        at = moment_ptr + row * 3 * K + k
        n = tl.load(at, mask=in_k, other=0)[None, :]
        u = tl.load(at + K, mask=in_k, other=0)[None, :]
        uu = tl.load(at + 2 * K, mask=in_k, other=0)[None, :]
        origin = tl.load(thr + k - 1, mask=in_k, other=0)[None, :]
        k = k[None, :]
        window = (k >= begin_i[:, None]) & (k < end_i[:, None])
        over = (k >= end_i[:, None]) & in_k[None, :]
        d = (origin - lo_i) * per_tau
        e = (origin - hi_i) * per_tau
        value = tl.where(over, n * (1 + 2 * e) + 2 * u, 0)
        value = tl.where(window, uu + 2 * d * u + d * d * n, value)
        total += tl.sum(value, 1)
        change = tl.where(over, n, 0)
        slope += tl.sum(tl.where(window, u + d * n, change), 1)
    x = tl.load(pos_ptr + line + i, mask=in_i, other=0).to(tl.float64)
    broken = x != x
    total = tl.where(broken, float('nan'), total)
    slope = tl.where(broken, float('nan'), -2 * per_tau * slope)
    tl.store(total_ptr + line + i, total, mask=in_i)
    tl.store(slope_ptr + line + i, slope, mask=in_i)
