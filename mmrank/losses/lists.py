"""The one door into a loss: scores, labels, weights and groups are checked and become lists."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import can_sync, violated
from mmrank.errors import UserError
from mmrank.tensors import check_floats, check_tensors, refuse_nan, shares, zeros_and_ones


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
    #: Process group over which the negatives are spread, or None.
    group: object = None
    #: Process group whose ranks hold other positives than ``pos``, or None.
    state_group: object = None
    #: (L,) integer class of each list; None if list i is class i's or there is one in all.
    list_classes: Tensor | None = None
    #: Of the labels, of which ``values`` holds those that a positive shares with the query.
    num_levels: int = 1

    @property
    def has_positive(self) -> Tensor:
        return self.pos_mask.any(1)

    def required_values(self) -> Tensor:
        """The values; a loss that has a ``box_input`` gets them."""
        return cast(Tensor, self.values)

    def num_negatives(self) -> Tensor:
        """(L,) float64 number of negatives, the same on all ranks of the group."""
        mask = self.is_negative
        if len(mask) == 1 and can_sync(mask):
            number = torch.tensor([np.count_nonzero(mask.numpy())]).double()
        else:
            # Block by block: a sum of bool makes a copy in int64 on a CPU.
            blocks = mask.split(max(2**20 // max(len(mask), 1), 1), 1)
            number = torch.stack([block.sum(1) for block in blocks]).sum(0).double()
        if self.group is not None:
            dist.all_reduce(number, group=self.group)
        return number


#: Scores of all lists, and pairs of them, up to which a device compares every score.
MOST_SCORES = 2**20
MOST_PAIRS = 2**24


def positive_index(is_positive: Tensor, most_pairs: float = MOST_PAIRS) -> tuple[Tensor, Tensor]:
    """(L, P) columns of the positives of (L, N) bool, ascending, and (L, P) mask of the padding.

    On a device, and in a compiled graph, P is N and the mask is ``is_positive`` itself: the host
    does not wait for the number of positives. Beyond ``most_pairs`` of N^2 L and 2^20 scores it
    does, as comparing every score would take longer.
    """
    scores = is_positive.numel()
    width = is_positive.size(1)
    if not can_sync(is_positive) and scores <= MOST_SCORES and scores * width <= most_pairs:
        columns = torch.arange(width, device=is_positive.device)
        return columns.expand(is_positive.shape), is_positive
    if can_sync(is_positive):
        # Several times faster than nonzero() where few are positive.
        flat = torch.from_numpy(np.flatnonzero(is_positive.numpy()))
    else:
        flat = is_positive.flatten().nonzero()[:, 0]
    if is_positive.size(0) == 1:
        # The number of positives is known: no second wait for the device.
        index = flat.unsqueeze(0)
        return index, torch.ones_like(index, dtype=torch.bool)
    lists = flat // width
    columns = flat % width
    # Not by bincount, which makes the host wait for the device.
    counts = lists.new_zeros(is_positive.size(0))
    counts.scatter_add_(0, lists, torch.ones_like(lists))
    width = int(counts.max()) if lists.numel() else 0
    first = counts.cumsum(0) - counts
    slot = torch.arange(lists.numel(), device=lists.device) - first[lists]
    index = lists.new_zeros(is_positive.size(0), width)
    index[lists, slot] = columns
    mask = torch.zeros_like(index, dtype=torch.bool)
    mask[lists, slot] = True
    return index, mask


def values_at(values: Tensor, index: Tensor, columns: int) -> Tensor:
    """(L, P) values of boxes at (L, P) columns of lists.

    ``values`` are (L, M): a box has ``columns`` / M scores in a row.
    """
    each = columns // max(values.size(1), 1)
    return values.gather(1, index // max(each, 1))


def columns_of(cls_score: Tensor, target: Tensor, by_head: bool) -> tuple[Tensor, Tensor]:
    """(n,) scores and (n,) labels of 0 and 1 as (n, 1) each; others as they are.

    UserError where 1 might mean the positives or the background, or floats are class indices.
    """
    check_tensors(cls_score=cls_score, target=target)
    if cls_score.dim() == 1:
        if target.shape != cls_score.shape:
            raise UserError(
                f'target must be a 0 or 1 for each cls_score of shape {tuple(cls_score.shape)}, '
                f'got shape {tuple(target.shape)}. Fix: labels of that shape, or cls_score of '
                'shape (n, classes)'
            )
        fix = 'target > 0 if these are positives, or cls_score of shape (n, classes) for indices'
        target = zeros_and_ones('target of (n,) scores', target, fix)
        return cls_score.unsqueeze(1), target.unsqueeze(1)
    if by_head or target.dim() != 1 or cls_score.dim() != 2:
        return cls_score, target
    shapes = (
        f'target of shape {tuple(target.shape)} for cls_score of shape {tuple(cls_score.shape)}'
    )
    if cls_score.size(1) == 1:
        raise UserError(
            f'{shapes}: 1 may be the positive or, as the index of a class, the background. Fix: '
            'loss(cls_score[:, 0], target) if 1 is the positive; loss(cls_score, target, '
            'avg_factor=1) if 0 is the one class and 1 the background, as heads call it'
        )
    if target.is_floating_point():
        raise UserError(
            f'{shapes} must be class indices, got {target.dtype}. Fix: loss(cls_score, '
            'target.long()); labels of 0 and 1 have the shape of the scores'
        )
    return cls_score, target


def class_indices(target: Tensor, num_classes: int, highest: int) -> Tensor:
    """(n,) labels as int64, from 0 to ``highest``, C or C - 1; else ValueError.

    On a GPU it is a device-side assertion, which does not make the host wait.
    """
    if target.is_floating_point():
        refuse_nan('target', target, 'give each row the index of its class')
    else:
        target = target.long()  # a smaller type would wrap the number of classes
    fits = (target >= 0) & (target <= highest)
    if target.is_floating_point():
        fits &= target == target.floor()
    whole_numbers = f'target must be whole numbers from 0 to {highest}, the classes of the scores'
    if violated(fits.all(), whole_numbers):
        background = f' ({num_classes} = background)' if highest == num_classes else ''
        raise ValueError(
            f'target holds class indices from {target.min().item()} to {target.max().item()}, but '
            f'they must be whole numbers from 0 to {highest}: the scores have {num_classes} '
            f'classes{background}; set num_classes of the head to the number of classes of the '
            'data set. Embeddings and their classes go into '
            'mmrank.EmbeddingLoss(loss)(embeddings, classes)'
        )
    return target.long()


#: What to do about labels of another meaning.
_FIX = (
    'target > 0 if each number above 0 is a positive; weight, (n, C) of 0 and 1, to leave out what '
    'is unknown; ndcg_loss or hap_loss of mmrank.functional for grades'
)


def one_vs_all(target: Tensor, num_classes: int, soft: bool = False) -> Tensor:
    """(n, C) bool of (n,) class indices, C = background, or of (n, C) labels; else ValueError.

    With ``soft`` labels in [0, 1] are positive above 0, as heads mix them.
    """
    if target.dim() == 2 and target.size(1) == num_classes:
        if soft and target.is_floating_point():
            return shares('target', target, _FIX) > 0
        return zeros_and_ones('target', target, _FIX)
    if target.dim() != 1:
        raise ValueError(
            f'target must be (n,) class indices or (n, {num_classes}) labels '
            f'for {num_classes} classes, got shape {tuple(target.shape)}'
        )
    target = class_indices(target, num_classes, num_classes)
    result = torch.zeros((len(target), num_classes), dtype=torch.bool, device=target.device)
    if num_classes == 0:
        return result
    # Several times faster than comparing each entry. A row of background writes False to the last
    # column.
    column = target.clamp(max=num_classes - 1).unsqueeze(1)
    return result.scatter_(1, column, (target < num_classes).unsqueeze(1))


def check_classified(
    cls_score: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    num_classes: int | None = None,
    weight_per_class: bool = True,
) -> None:
    """Check that (n, C) scores, labels and weights fit together, else ValueError or TypeError."""
    check_floats(cls_score=cls_score)
    check_tensors(target=target, weight=weight)
    if cls_score.dim() != 2:
        raise ValueError(f'cls_score must be (n, classes), got shape {tuple(cls_score.shape)}')
    rows, classes = cls_score.shape
    if num_classes is not None and num_classes != classes:
        raise ValueError(
            f'num_classes={num_classes} but cls_score has {classes} columns; set num_classes of '
            'the loss and the head to the same value'
        )
    both = [(rows,), (rows, classes)]
    checked = [('target', target, both), ('weight', weight, both if weight_per_class else both[:1])]
    for name, values, allowed in checked:
        if values is None:
            continue
        if tuple(values.shape) not in allowed:
            shapes = ' or '.join(map(str, allowed))
            raise ValueError(
                f'{name} must have shape {shapes} for cls_score of shape {tuple(cls_score.shape)}, '
                f'got {tuple(values.shape)}; give one {name} for each row of the scores'
            )
        if values.device != cls_score.device:
            raise ValueError(
                f'{name} is on {values.device} but cls_score on '
                f'{cls_score.device}; call {name}.to(cls_score.device)'
            )
    if weight is not None:
        refuse_nan('weight', weight, 'give 0 to a row that should not count')
