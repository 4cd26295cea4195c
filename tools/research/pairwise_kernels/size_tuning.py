"""Launch sizes of the Triton kernels, measured on a device."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from mmrank.functional.pairwise.triton import sums
from mmrank.functional.pairwise.triton.sums import LaunchSizes
from research.common.timing import in_turn

#: Scores that can add to one copy of the sums: those of one program must.
_MOST_SCORES = 2**18
#: What is tried in turn, each with the best of those before: the pass, and
#: the values of each field.
STAGES = (
    ('forward', dict(block=(256, 512, 1024), warps=(2, 4, 8))),
    ('forward', dict(tiles=(4, 8, 16, 32, 64), copies=(8, 32, 128))),
    ('backward', dict(gradient_block=(256, 512, 1024, 2048), gradient_warps=(2, 4, 8))),
)


class TimedSizes(NamedTuple):
    """One line of the table.

    Attributes:
        part: ``'forward'`` or ``'backward'``.
        sizes: What was launched.
        milliseconds: Median of the pass.
        ratio: To the first line of its stage, measured in turn.
    """

    part: str
    sizes: LaunchSizes
    milliseconds: float
    ratio: float


def candidates(stage: int, best: LaunchSizes) -> list[LaunchSizes]:
    """What one stage tries, the best so far first."""
    _, fields = STAGES[stage]
    found = [best]
    for values in product(*fields.values()):
        sizes = best._replace(**dict(zip(fields, values)))
        fits = sizes.block * sizes.tiles <= _MOST_SCORES
        if fits and sizes not in found:
            found.append(sizes)
    return found


def tune(pos: Tensor, neg: Tensor, tau: float, repeats: int) -> Iterator[TimedSizes]:
    """Time all candidates, stage by stage.

    Args:
        pos: (L, P) scores of the positives.
        neg: (L, N) scores of the negatives.
        tau: Margin, > 0.
        repeats: Turns of each candidate.

    Yields:
        Lines of the table. Each stage starts from the fastest of the one before, which is its first
        line, of the ratio 1.
    """
    mask = torch.ones_like(pos, dtype=torch.bool)
    total, _, *extra = sums.launch_sums(pos, mask, neg, None, tau)
    grad = torch.ones_like(total)

    def run(part: str, sizes: LaunchSizes) -> None:
        with mock.patch.object(sums, 'SIZES', sizes):
            if part == 'forward':
                sums.launch_sums(pos, mask, neg, None, tau)
            else:
                sums.launch_gradient(grad, neg, None, *extra, tau)

    best = sums.SIZES
    for stage, (part, _) in enumerate(STAGES):
        tried = candidates(stage, best)
        times = in_turn({s: (run, (part, s)) for s in tried}, repeats)
        lines = [
            TimedSizes(part, sizes, 1e3 * seconds, ratio)
            for sizes, (seconds, ratio) in times.items()
        ]
        yield from lines
        best = min(lines, key=lambda line: line.ratio).sizes


def best_sizes(lines: list[TimedSizes]) -> LaunchSizes:
    """The sizes to use: the fastest of the last stage, which has the rest."""
    part = STAGES[-1][0]
    last = [line for line in lines if line.part == part]
    return min(last, key=lambda line: line.ratio).sizes
