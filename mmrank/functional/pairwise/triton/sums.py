"""The one-sided Huber surrogate by fused GPU kernels.

Needs triton, which is imported at the first call: everything else works without it. Six launches
forward and two backward, no host synchronisation,
the same bits in every run (see ``moments``). Both passes are opaque
operators, so ``torch.compile`` does not look inside.

``method='auto'`` takes the kernels only where ``MMRANK_TRITON=1`` is set: no device has run them
yet. ``tools/benchmarks/pairwise_gpu.py --all`` verifies them on one.
"""

import functools
import importlib.util
import os
import shutil
import struct
from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.autograd import opaque_operator

# The kernels that go over the positives do so for each pair of them; an entry of the look-up table
# has 16 digits for a number of thresholds.
MAX_POSITIVE_PAIRS = 2**30
MAX_POSITIVES = 2**14
# Binary digits of a score's place in its interval, of its square (or of the place's next digits)
# and of the number of scores that add to one copy of the sums. Count and place share 63 bits: 19 +
# 44 for up to 2^18 scores.
_COUNT_DIGITS = 18
_FRACTION = 25
_COUNT_AT = 44
_SQUARE = {torch.float32: 30, torch.float64: 43}
_MAX_CELLS = 2**14
_MIN_CELLS = 2**8
_CELLS_PER_THRESHOLD = 4


class LaunchSizes(NamedTuple):
    """How the two kernels that go over the scores are launched.

    The sum of what lies above all positives depends on them in its last bit.

    Attributes:
        block: Scores per step of a program, a power of 2.
        warps: Warps of a program, a power of 2.
        tiles: Steps of a program; ``block * tiles`` is at most 2^18.
        copies: Copies of the sums, at least: programs add to different ones, to get in each other's
            way less often.
        gradient_block: Scores of a program of the backward pass.
        gradient_warps: Warps of such a program.
    """

    block: int = 512
    warps: int = 4
    tiles: int = 16
    copies: int = 32
    gradient_block: int = 512
    gradient_warps: int = 4


#: ``tools/benchmarks/pairwise_gpu.py --tune`` measures others on a device.
SIZES = LaunchSizes()
# Checks without importing.
HAS_TRITON = importlib.util.find_spec('triton') is not None
#: Environment variable that makes the kernels part of ``method='auto'``.
SWITCH = 'MMRANK_TRITON'


def is_switched_on() -> bool:
    """Whether ``method='auto'`` may take the kernels.

    Raises:
        ValueError: If the environment variable is neither 0 nor 1.
    """
    value = os.environ.get(SWITCH) or '0'
    if value not in ('0', '1'):
        raise ValueError(
            f'{SWITCH}={value!r} is unknown; set it to 1 (fused kernels on a GPU) or 0 (torch)'
        )
    return value == '1'


def can_run(device: torch.device) -> bool:
    """Whether the kernels can run there: a GPU, or triton's interpreter."""
    if not HAS_TRITON:
        return False
    return device.type == 'cuda' or os.environ.get('TRITON_INTERPRET') == '1'


@functools.cache
def is_supported(index: int) -> bool:
    """Whether triton compiles for that GPU: Ampere or later, a C compiler.

    Where it does not, the torch path is used; kernels are optional.
    """
    compiler = os.environ.get('CC') or shutil.which('gcc') or 'clang'
    return (
        torch.version.hip is None
        and torch.cuda.get_device_capability(index) >= (8, 0)
        and shutil.which(compiler) is not None
    )


def takes_less_time(num_lists: int, num_pos: int) -> bool:
    """Whether the kernels are there and fit so many (padded) positives."""
    return HAS_TRITON and num_pos <= MAX_POSITIVES and num_lists * num_pos**2 <= MAX_POSITIVE_PAIRS


def _bits(value: float) -> int:
    return struct.unpack('<q', struct.pack('<d', value))[0]


def _cells(num_positives: int) -> int:
    wanted = 2 * num_positives * _CELLS_PER_THRESHOLD
    cells = 1 << max(wanted - 1, 1).bit_length()
    return min(max(cells, _MIN_CELLS), _MAX_CELLS)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _parts_and_copies(num_lists: int, width: int) -> tuple[int, int]:
    """Programs per list, and copies of the sums that they share in turn."""
    scores = SIZES.block * SIZES.tiles
    parts = max(_cdiv(width, scores), 1)
    most = 2**_COUNT_DIGITS // scores
    copies = max(_cdiv(parts, most), SIZES.copies // num_lists)
    return parts, min(copies, parts)


def _format(compared: torch.dtype) -> dict:
    """Layout of the integer sums: the same for all sizes, compiled once."""
    return dict(
        FRACTION=_FRACTION,
        COUNT_AT=_COUNT_AT,
        SQUARE=_SQUARE[compared],
        WORDS=3 if compared == torch.float64 else 2,
    )


def _mask_arguments(mask: Tensor | None, instead: Tensor) -> tuple:
    if mask is None:
        return instead, 0, 0
    return mask.view(torch.uint8), *mask.stride()


def _empty_results(pos: Tensor, neg: Tensor) -> tuple:
    num_lists, num_pos = pos.shape
    double = dict(dtype=torch.float64, device=pos.device)
    index = dict(dtype=torch.int32, device=pos.device)
    compared = torch.promote_types(neg.dtype, torch.float32)
    return (
        torch.empty(num_lists, num_pos, **double),
        torch.empty(num_lists, num_pos, **double),
        torch.empty(num_lists, 2 * num_pos, **double),
        pos.new_empty(num_lists, 2 * num_pos + 1, dtype=compared),
        torch.empty(2, num_lists, num_pos, **index),
        torch.empty(num_lists, _cells(num_pos), **index),
        torch.empty(num_lists, 2, **index),
    )


def _fake_sums(pos, pos_mask, neg, neg_mask, tau):
    return _empty_results(pos, neg)


def _fake_gradient(grad, neg, neg_mask, thresholds, cuts, edges, lut, sizes, tau):
    return torch.empty_like(neg)


def launch_sums(
    pos: Tensor, pos_mask: Tensor, neg: Tensor, neg_mask: Tensor | None, tau: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The forward pass: sums, slopes and what the backward pass needs."""
    from . import moments as triton_moments
    from . import tables as triton_tables

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
    layout = _format(cuts.dtype)
    parts, copies = _parts_and_copies(num_lists, width)
    words = num_lists * copies * intervals * layout['WORDS']
    zeros = pos.new_zeros(words + num_lists, dtype=torch.int64)
    sums, crowd = zeros.split([words, num_lists])
    floats = sums.view(torch.float64)
    table = cuts.new_empty(num_lists, intervals, 4)
    top = thresholds.new_empty(num_lists, parts, 2)
    moments = thresholds.new_empty(num_lists, 3, intervals)
    mask, mask_row, mask_col = _mask_arguments(neg_mask, real)

    with torch.cuda.device_of(neg):
        triton_tables.rank_kernel[num_lists, _cdiv(num_pos, 16)](
            pos, real, thresholds, cuts, edges[0], edges[1], sizes, num_pos,
            bits, BI=16, BK=32,
        )  # fmt: skip
        blocks = _cdiv(max(cells, intervals), 256)
        triton_tables.table_kernel[num_lists, blocks](
            thresholds, cuts, sizes, lut, table, crowd, num_pos, cells, bits,
            BLOCK=256,
        )  # fmt: skip
        triton_moments.moment_kernel[(num_lists * parts,)](
            neg, mask, cuts, sizes, lut, table, crowd, sums, floats, top,
            num_lists, width, num_pos, cells, copies, parts, *neg.stride(),
            mask_row, mask_col, bits, HAS_MASK=neg_mask is not None,
            BLOCK=SIZES.block, TILES=SIZES.tiles, **layout,
            num_warps=SIZES.warps,
        )  # fmt: skip
        triton_moments.collect_kernel[num_lists, _cdiv(intervals, 128)](
            sums, floats, top, sizes, table, crowd, moments, num_pos, copies,
            parts, bits, BLOCK=128, **layout,
        )  # fmt: skip
        triton_moments.evaluate_kernel[num_lists, _cdiv(num_pos, 16)](
            pos, moments, thresholds, edges[0], edges[1], sizes, total,
            slope, num_pos, bits, BI=16, BK=64,
        )  # fmt: skip
    return results


def launch_gradient(
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
    """The backward pass: the gradient by the negatives."""
    from . import gradient as triton_gradient

    num_lists, num_pos = grad.shape
    grad, bits = grad.double().contiguous(), _bits(tau)
    width, intervals = neg.size(1), 2 * num_pos + 1
    table = cuts.new_empty(num_lists, intervals, 4)
    out = torch.empty_like(neg)
    mask, mask_row, mask_col = _mask_arguments(neg_mask, sizes)
    with torch.cuda.device_of(neg):
        triton_gradient.coefficient_kernel[num_lists, _cdiv(intervals, 32)](
            grad, thresholds, edges[0], edges[1], sizes, table, num_pos, bits,
            BK=32, BI=64,
        )  # fmt: skip
        blocks = num_lists * _cdiv(width, SIZES.gradient_block)
        triton_gradient.gradient_kernel[(blocks,)](
            neg, mask, cuts, sizes, lut, table, out, num_lists, width,
            num_pos, lut.size(1), *neg.stride(), mask_row, mask_col,
            *out.stride(), HAS_MASK=neg_mask is not None,
            BLOCK=SIZES.gradient_block, num_warps=SIZES.gradient_warps,
        )  # fmt: skip
    return out


_sums = opaque_operator('mmrank::triton_interval_sums', _fake_sums)(launch_sums)
_gradient = opaque_operator('mmrank::triton_interval_gradient', _fake_gradient)(launch_gradient)


class TritonIntervalSums:
    """Exact sums in O(N + P^2) work and O(N + P) memory per list.

    Same contract as :class:`~.interval_sums.IntervalSums`; keeps no state between the two passes
    except what it returns.

    Args:
        tau: Margin, > 0.
    """

    def __init__(self, tau: float) -> None:
        self.tau = float(tau)

    def sums(
        self, pos: Tensor, pos_mask: Tensor, neg: Tensor, neg_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, tuple]:
        """Sums, their slopes by ``pos`` and what the gradient will need."""
        total, slope, *extra = _sums(pos, pos_mask, neg, neg_mask, self.tau)
        return total, slope, (neg_mask, *extra)

    def gradient_of_negatives(
        self, grad: Tensor, neg: Tensor, neg_mask: Tensor | None, *extra
    ) -> Tensor:
        """Gradient by ``neg`` from that of the sums, in its dtype."""
        return _gradient(grad, neg, neg_mask, *extra, self.tau)
