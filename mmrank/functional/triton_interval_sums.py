"""The one-sided Huber surrogate by fused GPU kernels.

Needs triton, which is imported at the first call: everything else works
without it. Six launches forward and two backward, no host synchronisation,
the same bits in every run (see ``triton_moments``). Both passes are opaque
operators, so ``torch.compile`` does not look inside.
"""

import importlib.util
import os
import struct

import torch
from torch import Tensor

# The kernels that go over the positives do so for each pair of them; an entry
# of the look-up table has 16 digits for a number of thresholds.
MAX_POSITIVE_PAIRS = 2**30
MAX_POSITIVES = 2**14
# Scores per copy of the sums: two digits less for each doubling.
_SCORES_PER_COPY = 2**18
# Programs add to different copies, to get in each other's way less often.
_MIN_COPIES = 32
_BLOCK = 1024
_TILES = 8
_MAX_CELLS = 2**14
_MIN_CELLS = 2**8
_CELLS_PER_THRESHOLD = 4


# Asks without importing.
HAS_TRITON = importlib.util.find_spec('triton') is not None


def can_run(device: torch.device) -> bool:
    """Whether the kernels can run there: a GPU, or triton's interpreter."""
    if not HAS_TRITON:
        return False
    return device.type == 'cuda' or os.environ.get('TRITON_INTERPRET') == '1'


def takes_less_time(num_lists: int, num_pos: int) -> bool:
    """Whether the kernels are there and fit so many (padded) positives."""
    return (
        HAS_TRITON
        and num_pos <= MAX_POSITIVES
        and num_lists * num_pos**2 <= MAX_POSITIVE_PAIRS
    )


def _bits(value: float) -> int:
    return struct.unpack('<q', struct.pack('<d', value))[0]


def _cells(num_positives: int) -> int:
    wanted = 2 * num_positives * _CELLS_PER_THRESHOLD
    cells = 1 << max(wanted - 1, 1).bit_length()
    return min(max(cells, _MIN_CELLS), _MAX_CELLS)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _plan(num_lists: int, width: int, dtype: torch.dtype) -> dict:
    """How the scores of a list are spread over programs and copies."""
    parts = max(_cdiv(width, _BLOCK * _TILES), 1)
    copies = max(_cdiv(width, _SCORES_PER_COPY), _MIN_COPIES // num_lists, 1)
    copies = min(copies, parts)
    most = _cdiv(parts, copies) * _BLOCK * _TILES
    digits = (most - 1).bit_length()
    # count * 2^count_at + sum of fractions, both of up to 2^digits scores.
    fraction = 61 - 2 * digits
    return dict(
        parts=parts,
        copies=copies,
        FRACTION=fraction,
        COUNT_AT=digits + fraction + 1,
        # float32 has 24 digits: more would be zeros.
        SQUARE=61 - digits if dtype == torch.float64 else 30,
        WORDS=3 if dtype == torch.float64 else 2,
    )


def _mask_arguments(mask: Tensor | None, instead: Tensor) -> tuple:
    if mask is None:
        return instead, 0, 0
    return mask.view(torch.uint8), *mask.stride()


@torch.library.custom_op('mmrank::triton_interval_sums', mutates_args=())
def _sums(
    pos: Tensor,
    pos_mask: Tensor,
    neg: Tensor,
    neg_mask: Tensor | None,
    tau: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from . import triton_moments, triton_tables

    num_lists, num_pos = pos.shape
    if num_pos > MAX_POSITIVES:
        raise ValueError(
            f"method='triton' takes up to {MAX_POSITIVES} positives a list, "
            f"got {num_pos}; use method='auto'"
        )
    width = neg.size(1)
    results = _empty_results(pos, neg)
    total, slope, thresholds, cuts, edges, lut, sizes = results
    cells, intervals = lut.size(1), 2 * num_pos + 1
    pos, bits = pos.contiguous(), _bits(tau)
    real = pos_mask.contiguous().view(torch.uint8)
    plan = _plan(num_lists, width, neg.dtype)
    parts, copies = plan.pop('parts'), plan.pop('copies')
    words = num_lists * copies * intervals * plan['WORDS']
    zeros = torch.zeros(
        words + num_lists, dtype=torch.int64, device=pos.device
    )
    sums, crowd = zeros.split([words, num_lists])
    floats = sums.view(torch.float64)
    table = cuts.new_empty(num_lists, intervals, 4)
    top = thresholds.new_empty(num_lists, parts, 2)
    moments = thresholds.new_empty(num_lists, 3, intervals)

    # Lists run fastest: where they are the columns of one matrix, neighbours
    # share their memory sectors.
    triton_tables.rank_kernel[num_lists, _cdiv(num_pos, 32)](
        pos, real, thresholds, cuts, edges[0], edges[1], sizes, num_pos,
        bits, BI=32, BK=64,
    )  # fmt: skip
    triton_tables.table_kernel[num_lists, _cdiv(max(cells, intervals), 256)](
        thresholds, cuts, sizes, lut, table, crowd, num_pos, bits,
        CELLS=cells, BLOCK=256,
    )  # fmt: skip
    mask, mask_row, mask_col = _mask_arguments(neg_mask, real)
    triton_moments.moment_kernel[num_lists, parts](
        neg, mask, cuts, sizes, lut, table, crowd, sums, floats, top, width,
        num_pos, copies, *neg.stride(), mask_row, mask_col, bits,
        HAS_MASK=neg_mask is not None, CELLS=cells, BLOCK=_BLOCK,
        TILES=_TILES, **plan,
    )  # fmt: skip
    triton_moments.collect_kernel[num_lists, _cdiv(intervals, 128)](
        sums, floats, top, sizes, table, crowd, moments, num_pos, copies,
        parts, bits, BLOCK=128, **plan,
    )  # fmt: skip
    triton_moments.evaluate_kernel[num_lists, _cdiv(num_pos, 16)](
        pos, moments, thresholds, edges[0], edges[1], sizes, total, slope,
        num_pos, bits, BI=16, BK=128,
    )  # fmt: skip
    return results


def _empty_results(pos: Tensor, neg: Tensor) -> tuple:
    num_lists, num_pos = pos.shape
    double = dict(dtype=torch.float64, device=pos.device)
    index = dict(dtype=torch.int32, device=pos.device)
    compared = torch.promote_types(neg.dtype, torch.float32)
    return (
        torch.empty(num_lists, num_pos, **double),
        torch.empty(num_lists, num_pos, **double),
        torch.empty(num_lists, 2 * num_pos, **double),
        torch.empty(num_lists, 2 * num_pos, dtype=compared, device=pos.device),
        torch.empty(2, num_lists, num_pos, **index),
        torch.empty(num_lists, _cells(num_pos), **index),
        torch.empty(num_lists, 2, **index),
    )


@_sums.register_fake
def _(pos, pos_mask, neg, neg_mask, tau):
    return _empty_results(pos, neg)


@torch.library.custom_op('mmrank::triton_interval_gradient', mutates_args=())
def _gradient(
    grad: Tensor,
    neg: Tensor,
    neg_mask: Tensor | None,
    thresholds: Tensor,
    cuts: Tensor,
    edges: Tensor,
    lut: Tensor,
    sizes: Tensor,
    tau: float,
) -> Tensor:
    from . import triton_gradient

    num_lists, num_pos = grad.shape
    grad, bits = grad.double().contiguous(), _bits(tau)
    width, intervals = neg.size(1), 2 * num_pos + 1
    table = cuts.new_empty(num_lists, intervals, 4)
    triton_gradient.coefficient_kernel[num_lists, _cdiv(intervals, 32)](
        grad, thresholds, edges[0], edges[1], sizes, table, num_pos, bits,
        BK=32, BI=64,
    )  # fmt: skip
    out = torch.empty_like(neg)
    mask, mask_row, mask_col = _mask_arguments(neg_mask, sizes)
    triton_gradient.gradient_kernel[num_lists, _cdiv(width, _BLOCK)](
        neg, mask, cuts, sizes, lut, table, out, width, num_pos,
        *neg.stride(), mask_row, mask_col, *out.stride(),
        HAS_MASK=neg_mask is not None, CELLS=lut.size(1), BLOCK=_BLOCK,
    )  # fmt: skip
    return out


@_gradient.register_fake
def _(grad, neg, neg_mask, thresholds, cuts, edges, lut, sizes, tau):
    return torch.empty_like(neg)


class TritonIntervalSums:
    """Exact sums in O(N + P^2) work and O(N + P) memory per list.

    Same contract as :class:`~.interval_sums.IntervalSums`; keeps no state
    between the two passes but what it hands out.

    Args:
        tau: Margin, > 0.
    """

    def __init__(self, tau: float) -> None:
        self.tau = float(tau)

    def sums(
        self,
        pos: Tensor,
        pos_mask: Tensor,
        neg: Tensor,
        neg_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, tuple]:
        """Sums, their slopes by ``pos`` and what the gradient will need."""
        total, slope, *extra = _sums(pos, pos_mask, neg, neg_mask, self.tau)
        return total, slope, (neg_mask, *extra)

    def gradient_of_negatives(
        self, grad: Tensor, neg: Tensor, neg_mask: Tensor | None, *extra
    ) -> Tensor:
        """Gradient by ``neg`` from that of the sums, in its dtype."""
        return _gradient(grad, neg, neg_mask, *extra, self.tau)
