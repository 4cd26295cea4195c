"""Scores, labels and weights become lists of positives and negatives.

A loss has (n, C) scores and labels, see :func:`labelled_entries` and :func:`ranked_lists`; a
function of the public API has lists already, see ``plain_lists.py``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import can_sync, violated
from mmrank.distributed import all_gather_lists, join, scale_gradient
from mmrank.errors import UserError
from mmrank.tensors import (
    at_least_float32,
    check_floats,
    check_tensors,
    checked_weight,
    refuse_nan,
    refuse_swapped,
    shares,
    whole_numbers,
    zeros_and_ones,
)

#: Scores of all lists, and pairs of them, up to which a device compares every score.
MOST_SCORES = 2**20
MOST_PAIRS = 2**24


@dataclass
class RankedLists:
    """L rankings of a batch, what a ranking loss is computed from."""

    #: (L, P) activated scores of the positives, padded; of all ranks when ``group`` is set.
    pos: Tensor
    #: (L, P) bool, False for padding.
    pos_mask: Tensor
    #: (L, N) activated scores of this rank.
    scores: Tensor
    #: (L, N) bool each, True at the positives and at the negatives of this rank.
    is_positive: Tensor
    is_negative: Tensor
    #: (L, P) one value for each positive, such as the quality of its box, or None.
    values: Tensor | None = None
    group: object = None  # over which the negatives are spread, or None
    state_group: object = None  # whose ranks hold other positives than ``pos``, or None
    #: (L,) integer class of each list; None if list i is class i's or there is one in all.
    list_classes: Tensor | None = None
    list_weight: Tensor | None = None  # (L,) floats, of the lists in their mean
    #: Whether the host may look at the lists without waiting for them, which nothing below asks
    #: again: on a CPU, but not in a compiled graph, nor in a transform of ``torch.func``.
    on_host: bool = False
    #: Of the labels, of which ``values`` holds those that a positive shares with the query. None:
    #: the largest of the values, which the host looks at.
    num_levels: int | None = None
    #: (L, P) and (L, N) float weights >= 0 of ``pos`` and ``scores``: one of weight w counts as w
    #: scores. None: each is one.
    pos_weight: Tensor | None = None
    weight: Tensor | None = None
    #: (L, P) how often each of ``pos`` counts, 0 for padding: ``pos_mask``, or float weights.
    positives: Tensor = field(init=False)
    #: (L, N) how often each of ``scores`` counts as a negative: ``is_negative``, or float weights.
    negatives: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.positives = self.pos_mask if self.pos_weight is None else self.pos_weight
        self.negatives = self.is_negative if self.weight is None else self.weight * self.is_negative

    @property
    def has_positive(self) -> Tensor:
        """(L,) bool."""
        return self.pos_mask.any(1)

    @property
    def counted(self) -> Tensor:
        """(L,) how often each list counts in the mean, 0 without a positive: bool or float."""
        return self.counts_of(self.has_positive)

    def counts_of(self, lists: Tensor) -> Tensor:
        """(L,) bool of some lists, or their float weights in the mean."""
        return lists if self.list_weight is None else torch.where(lists, self.list_weight, 0)

    def by_list(self, counts: Tensor) -> Tensor:
        """(L, N) counts times the weight of their list."""
        return counts if self.list_weight is None else counts * self.list_weight[:, None]

    def num_positives(self) -> Tensor:
        """(L,) float64 number of positives, or the sum of their weights."""
        return self.positives.sum(1).double()

    def required_values(self) -> Tensor:
        """The values; a loss that has a ``box_input`` gets them."""
        return cast(Tensor, self.values)

    def num_negatives(self) -> Tensor:
        """(L,) float64 number of negatives, or the sum of their weights, on all ranks the same."""
        mask = self.negatives
        if self.on_host and mask.dtype == torch.bool:
            # A sum of bool makes a copy in int64 on a CPU.
            number = torch.tensor([np.count_nonzero(row) for row in mask.numpy()]).double()
        else:
            number = mask.sum(1, dtype=torch.float64)
        if self.group is not None:
            dist.all_reduce(number, group=self.group)
        return number


def columns_of(cls_score: Tensor, target: Tensor, by_head: bool) -> tuple[Tensor, Tensor]:
    """(n,) scores and (n,) labels of 0 and 1 as (n, 1) each; others as they are.

    UserError where 1 might mean the positives or the background, or floats are class indices.
    """
    check_tensors(cls_score=cls_score, target=target)
    refuse_swapped('cls_score', cls_score, target)
    scores_shape = tuple(cls_score.shape)
    shapes = f'target of shape {tuple(target.shape)} for cls_score of shape {scores_shape}'
    if cls_score.dim() == 1:
        if target.shape != cls_score.shape:
            what = f'{shapes} must be a 0 or 1 for each score'
            raise UserError(what, 'labels of that shape, or cls_score of shape (n, classes)')
        return cls_score.unsqueeze(1), target.unsqueeze(1)
    if by_head or target.dim() != 1 or cls_score.dim() != 2:
        return cls_score, target
    if cls_score.size(1) == 1:
        raise UserError(
            f'{shapes}: 1 may be the positive or, as the index of a class, the background. Fix: '
            'loss(cls_score[:, 0], target) if 1 is the positive; loss(cls_score, target, '
            'avg_factor=len(target)) if 0 is the one class and 1 the background, as heads call it'
        )
    if target.is_floating_point():
        what = f'{shapes} must be class indices, got {target.dtype}'
        fix = 'loss(cls_score, target.long()); labels of 0 and 1 have the shape of the scores'
        raise UserError(what, fix)
    return cls_score, target


#: What to do about labels of another meaning.
_FIX = (
    'target > 0 if each number above 0 is a positive; weight=(target != ignored) to leave out what '
    'is unknown; mmrank.NDCGLoss or HAPLoss for grades; loss(scores, labels) in that order'
)


def class_indices(target: Tensor, num_classes: int, highest: int) -> Tensor:
    """(n,) labels as int64, from 0 to ``highest``, C or C - 1; else ValueError."""
    refuse_nan('target', target, 'weight=~target.isnan() leaves rows without a class out')
    if not target.is_floating_point():
        target = target.long()  # a smaller type would wrap the number of classes
    fits = (target >= 0) & (target <= highest) & (target == target.floor())
    if violated(fits.all(), f'target must be whole numbers from 0 to {highest}, the classes'):
        last = 'background' if highest == num_classes else 'no class is for use_sigmoid=True'
        raise UserError(
            f'target holds class indices from {target.min().item()} to {target.max().item()}, but '
            f'they must be whole numbers from 0 to {highest}: the scores have {num_classes} '
            f'classes ({num_classes} = {last}). Fix: weight=(target != ignored) leaves rows out; '
            'num_classes of the head counts the classes of the data set; embeddings and their '
            'classes go into mmrank.EmbeddingLoss(loss)(embeddings, classes)'
        )
    return target.long()


def one_vs_all(target: Tensor, classes: int, soft: bool = False, levels: bool = False) -> Tensor:
    """(n, C) bool of (n,) class indices, C = background, or of (n, C) labels; else ValueError.

    With ``soft`` labels in [0, 1] are positive above 0, as heads mix them; with ``levels`` whole
    numbers are.
    """
    if target.dim() == 2:
        if soft and target.is_floating_point():
            return shares('target', target, _FIX) > 0
        if levels:
            return whole_numbers('target', target, 'weight=(target >= 0)') > 0
        return zeros_and_ones('target', target, _FIX)
    target = class_indices(target, classes, classes)
    result = torch.zeros((len(target), classes), dtype=torch.bool, device=target.device)
    if classes == 0:
        return result
    # Faster than comparing each entry. A row of background writes False to the last column.
    column = target.clamp(max=classes - 1).unsqueeze(1)
    return result.scatter_(1, column, (target < classes).unsqueeze(1))


def check_classified(cls_score: Tensor, target: Tensor, num_classes: int | None) -> None:
    """Check that (n, C) scores and labels fit together, else UserError or TypeError."""
    check_floats(cls_score=cls_score)
    check_tensors(target=target)
    if cls_score.dim() != 2:
        raise UserError(
            f'cls_score must be (n, classes), got shape {tuple(cls_score.shape)}. Fix: of maps '
            '(N, 1, H, W) loss(cls_score.flatten(), target.flatten()), of (N, C, H, W) '
            'loss(cls_score.movedim(1, -1).flatten(0, -2), target.flatten())'
        )
    rows, classes = cls_score.shape
    # Not "in (None, classes)": in a compiled graph a size may be a symbol, which is in no tuple.
    if num_classes is not None and num_classes != classes:
        what = f'num_classes={num_classes} but cls_score has {classes} columns'
        raise UserError(what, 'set num_classes of the loss and the head to the same value')
    both = [(rows,), (rows, classes)]
    if tuple(target.shape) not in both:
        fits = f'{" or ".join(map(str, both))} for cls_score of shape {tuple(cls_score.shape)}'
        what = f'target must have shape {fits}, got {tuple(target.shape)}'
        raise UserError(what, 'give one target for each row of the scores')


def without_left_out(target: Tensor, counted: Tensor) -> Tensor:
    """Labels with 0 where nothing of (n, 1) or (n, C) bool counts: those are never looked at."""
    return target.masked_fill(~(counted.any(1) if target.dim() == 1 else counted), 0)


def labelled_entries(
    cls_score: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    num_classes: int | None = None,
    soft: bool = False,
    levels: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(n, C) bool of the positives and of the negatives of (n, C) scores, and their weights.

    ValueError or TypeError where labels or weights do not fit. See :func:`one_vs_all` for ``soft``
    and ``levels``. The (n, C) weights are None where each entry counts once, or not.
    """
    check_classified(cls_score, target, num_classes)
    counted = None
    if weight is not None:
        checked_weight('weight', weight, tuple(cls_score.shape[:1]), tuple(cls_score.shape))
        counted, weight = counted_and_weight(weight.unsqueeze(1) if weight.dim() == 1 else weight)
        weight = None if weight is None else weight.expand(cls_score.shape)
    if counted is not None:
        target = without_left_out(target, counted)
    is_positive = one_vs_all(target, cls_score.size(1), soft, levels)
    return *both_sides(is_positive, counted), weight


def both_sides(is_positive: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor]:
    """Bool of the positives and of the negatives, of what counts; None: all does."""
    if counted is None:
        return is_positive, ~is_positive
    return is_positive & counted, ~is_positive & counted


def counted_and_weight(weight: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Where checked weights are above 0, and the weights, at least float32.

    The first is None where the host sees that all are. The second is None where they are 0 and 1,
    which a mask says faster, unless the host would wait for the answer.
    """
    if weight.dtype == torch.bool:
        return None if can_sync(weight) and weight.all() else weight, None
    weight = at_least_float32(weight)
    if not can_sync(weight):
        return weight > 0, weight
    least, most = weight.aminmax() if weight.numel() else (1, 1)
    counted = weight > 0 if least == 0 else None
    is_mask = least == most == 1 if counted is None else (weight == counted).all()
    return counted, None if is_mask else weight


def values_at(values: Tensor, index: Tensor, columns: int) -> Tensor:
    """(L, P) entries at (L, P) columns, of (L, M) boxes with ``columns`` / M scores in a row."""
    each = columns // max(values.size(1), 1)
    return values.gather(1, index // max(each, 1))


def positive_index(
    is_positive: Tensor, most_pairs: float = MOST_PAIRS, on_host: bool = False
) -> tuple[Tensor, Tensor]:
    """(L, P) columns of the positives of (L, N) bool, ascending, and (L, P) mask of the padding.

    Unless ``on_host`` P is N and the mask is ``is_positive`` itself, so that the host does not
    wait; beyond ``most_pairs`` of N^2 L and 2^20 scores it does.
    """
    num_lists, width = is_positive.shape
    scores = is_positive.numel()
    if not on_host and scores <= MOST_SCORES and scores * width <= most_pairs:
        columns = torch.arange(width, device=is_positive.device)
        return columns.expand(is_positive.shape), is_positive
    if on_host:
        # Several times faster than nonzero() where few are positive.
        flat = torch.from_numpy(np.flatnonzero(is_positive.numpy()))
    else:
        flat = is_positive.flatten().nonzero()[:, 0]
    if num_lists == 1:
        # The number of positives is known: no second wait for the device.
        return flat[None], torch.ones_like(flat[None], dtype=torch.bool)
    lists = flat // width
    # Not by bincount, which makes the host wait for the device.
    counts = lists.new_zeros(num_lists).scatter_add_(0, lists, torch.ones_like(lists))
    longest = int(counts.max()) if lists.numel() else 0
    mask = torch.arange(longest, device=lists.device) < counts[:, None]
    return lists.new_zeros(mask.shape).masked_scatter_(mask, flat % width), mask


def probabilities(scores: Tensor) -> Tensor:
    """Sigmoid of raw scores, at least in float32."""
    scores = at_least_float32(scores)  # in half precision all near 1 would tie
    broken = scores.isnan()  # its slope is NaN, also where a list does not count
    return torch.where(broken, scores, scores.masked_fill(broken, 0).sigmoid())


@dataclass(frozen=True)
class ListSettings:
    """What :func:`ranked_lists` does with lists; by default they stay as they are."""

    activation: str = 'none'  # of the scores before they are compared, or ``sigmoid``
    cost: str = 'pairs'  # what a step takes time for: of a positive and a score, or ``scores``
    zero_without_positives: bool = False  # whether the scores of a list without one are 0
    group: dist.ProcessGroup | None = None  # whose batches are one
    state_group: dist.ProcessGroup | None = None  # of lists of their own, but one state


def ranked_lists(
    settings: ListSettings,
    scores: Tensor,
    is_positive: Tensor,
    is_negative: Tensor,
    values: Tensor | None = None,
    list_classes: Tensor | None = None,
    weight: Tensor | None = None,
    list_weight: Tensor | None = None,
) -> RankedLists:
    """Activate (L, N) raw scores and gather their positives, of all ranks of a group.

    ``is_positive`` and ``is_negative`` are (L, N) bool. ``values`` are (L, M) floats of boxes, see
    :func:`values_at`, ``list_classes`` (L,) integers where the lists are queries, ``weight`` and
    ``list_weight`` (L, N) and (L,) floats >= 0, how often each counts.
    """
    on_host = can_sync(scores)
    group = settings.group
    if group is not None:
        scores = scale_gradient(scores, dist.get_world_size(group))
    if settings.activation == 'sigmoid':
        scores = probabilities(scores)
    # Values of boxes are compared in pairs of positives.
    most_pairs = MOST_PAIRS if settings.cost == 'pairs' or values is not None else math.inf
    if group is not None:
        most_pairs = 0  # to join them, the host waits for the number of positives in any case
    index, pos_mask = positive_index(is_positive, most_pairs, on_host)
    pos = scores.gather(1, index)
    if values is not None:
        values = torch.where(pos_mask, values_at(values, index, scores.size(1)), 0)
    pos_weight = None if weight is None else torch.where(pos_mask, weight.gather(1, index), 0)
    if group is not None:
        pos, values, pos_weight, pos_mask = _of_all_ranks(pos, values, pos_weight, pos_mask, group)
        # Another rank may have wider scores, or weights.
        scores = scores.to(torch.promote_types(pos.dtype, scores.dtype))
        if pos_weight is not None and weight is None:
            weight = torch.ones_like(at_least_float32(scores.detach()))
    if settings.zero_without_positives:
        has_positive = pos_mask.any(1, keepdim=True)
        # On a device the host would wait for the answer.
        if not (on_host and has_positive.all()):
            scores = torch.where(has_positive, scores, 0)
        pos = torch.where(pos_mask, pos, 0)
    pos_weight = None if pos_weight is None else pos_weight.double()
    entries = pos, pos_mask, scores, is_positive, is_negative, values
    of_lists = group, settings.state_group, list_classes, list_weight, on_host
    return RankedLists(*entries, *of_lists, pos_weight=pos_weight, weight=weight)


def _of_all_ranks(
    pos: Tensor, values: Tensor | None, weight: Tensor | None, pos_mask: Tensor, group
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """(L, P) positives, values, weights and mask of this rank, joined with those of all ranks."""
    rows = pos
    if values is not None:
        # They travel together: one wait for the width.
        rows = join([pos, scale_gradient(values, dist.get_world_size(group))])
    rows, pos_mask, weight = all_gather_lists(rows, pos_mask, group, weight)
    return rows[: len(pos)], None if values is None else rows[len(pos) :], weight, pos_mask


def negatives_of_all_ranks(scores: Tensor, lists: RankedLists) -> tuple[Tensor, Tensor]:
    """(L, M) scores of the lists of all ranks, of (L, N), and how often each is a negative."""
    if lists.group is None:
        return scores, lists.negatives
    weight = None if lists.weight is None else lists.negatives
    every, _, weight, mask = _of_all_ranks(scores, None, weight, lists.is_negative, lists.group)
    return every, mask if weight is None else weight


def all_positives(parts: Sequence[RankedLists]) -> tuple[Tensor, Tensor]:
    """(1, n) positives of all lists, padding included, and how often each counts.

    Of one part (L, P) as they are. See :attr:`RankedLists.positives`: those of a list of weight w
    count w times as often.
    """
    all_counts = [x.by_list(x.positives) for x in parts]
    if len(parts) == 1:
        return parts[0].pos, all_counts[0]
    pos = torch.cat([lists.pos.flatten().double() for lists in parts])
    return pos[None], torch.cat([x.flatten() for x in all_counts])[None]
