"""Sums over pairs of positives of different relevance, by their matrix in blocks."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.tensors import clamp_infinite, column_blocks, require_numbers

from .lists import RankedLists
from .pairs import given_gradient
from .pairs_smooth import Surrogate

# Pairs of positives of one block, each a float64: on a device, and what a CPU's cache holds.
_PAIRS_PER_BLOCK = 2**20
_CACHED_PAIRS = 2**16


#: How much the IoU of a box counts where ``quality`` is None and a head passes it.
GRADED = 0.9


class CountsQuality:
    """A loss whose positives count by the IoU of their boxes, where a head passes it."""

    #: How much it counts, q in [0, 1]. None: :data:`GRADED` where a head passes the IoUs; every
    #: other batch is as with 0.
    quality: float | None = None
    box_input: str | None = 'quality'
    requires_boxes = False

    def count_quality(self, quality: float) -> None:
        """Require the IoUs of heads, or take none for 0; ValueError outside [0, 1]."""
        if not 0 <= quality <= 1:
            raise UserError(
                f'quality must be in [0, 1], got {quality!r}. Fix: 0 for positives that are all '
                f'alike, {GRADED} to let the IoU of their boxes count'
            )
        self.quality = quality
        self.box_input = None if quality == 0 else 'quality'
        self.requires_boxes = quality != 0

    def relevance(self, lists: RankedLists) -> Tensor | None:
        """(L, P) float64 ``u = 1 - q + q IoU`` of the positives, no gradient; None for q = 0."""
        quality = GRADED if self.quality is None else self.quality
        if quality == 0:
            return None
        return 1 - quality + quality * lists.required_values().detach().double()


def relevances(lists: RankedLists) -> Tensor | None:
    """The values of the positives, if they have any; UserError for one below 0, or NaN."""
    values = lists.values
    if values is not None:
        fix = 'is_positive=relevance > 0; mask=relevance >= 0 leaves out what is unknown'
        require_numbers('relevance', values, values >= 0, '>= 0 at the positives', fix)
    return values


@torch.no_grad()
def graded_mass(grade: Tensor, counts: Tensor) -> Tensor:
    """(L, P) float64 ``sum_k c_k (u_i - u_k)_+`` of (L, P) relevances u, 0 at padding.

    ``counts`` c are how often each counts, see :attr:`RankedLists.positives`.
    """
    mask = counts > 0
    ordered, order = torch.where(mask, grade.double(), torch.inf).sort(1)
    # How many are below each.
    number = counts.double().gather(1, order).cumsum(1).roll(1, 1)
    number[:, :1] = 0
    # Summed over the gaps, so that equal relevances have exactly 0; inf - inf is padding's.
    mass = ordered.diff(dim=1, prepend=ordered[:, :1]).mul_(number).cumsum(1)
    return torch.where(mask, torch.empty_like(mass).scatter_(1, order, mass), 0)


def graded_pairs(
    pos: Tensor, counts: Tensor, grade: Tensor, on_host: bool
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows i, and (L, rows, P) float64 ``c_k (u_i - u_k)_+`` and ``s_i - s_k``, by blocks.

    Both may be overwritten. Arguments: see :func:`graded_pair_sum`.
    """
    mask = counts > 0
    scores = clamp_infinite(torch.where(mask, pos, 0).double())
    better = torch.where(mask, grade.double(), 0)
    worse = torch.where(mask, grade.double(), torch.inf)
    size = _CACHED_PAIRS if on_host else _PAIRS_PER_BLOCK
    for rows in column_blocks(pos.size(1), max(size // max(pos.numel(), 1), 1), on_host):
        gaps = (better[:, rows, None] - worse[:, None]).clamp_(min=0)
        if counts.is_floating_point():
            gaps *= counts[:, None]
        yield rows, gaps, scores[:, rows, None] - scores[:, None]


def graded_pair_sum(
    pos: Tensor, counts: Tensor, grade: Tensor, weight: Tensor, surrogate: Surrogate, on_host: bool
) -> tuple[Tensor, Tensor]:
    """``sum_i w_i E_i`` and ``E_i = sum_k c_k (u_i - u_k)_+ l(s_i - s_k)`` of lists of positives.

    Both float64: the (L,) sum is differentiable once, in the (L, P) scores ``pos`` alone, the (L,
    P) E have no gradient. ``grade`` and ``weight`` are (L, P) relevances u and weights w, float64,
    ``counts`` are c, how often each counts; both are 0 for padding.
    """
    with torch.no_grad():
        sums = torch.zeros_like(weight)
        slope = torch.zeros_like(weight)
        for rows, gaps, x in graded_pairs(pos, counts, grade, on_host):
            change = torch.empty_like(x)
            sums[:, rows] = cast(Tensor, surrogate.terms(x, True, change)).mul_(gaps).sum(2)
            change *= gaps
            own = weight[:, rows]
            slope[:, rows] += own * change.sum(2)
            slope -= torch.bmm(own.unsqueeze(1), change).squeeze(1)
        sums *= surrogate.value_factor
        slope *= surrogate.slope_factor
    return given_gradient((weight * sums).sum(1), (pos, slope)), sums
