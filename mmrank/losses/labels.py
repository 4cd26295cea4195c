"""Labels of scores: 0 and 1, class indices or ids of lists, checked and as columns of 0 and 1."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmrank.autograd import fails
from mmrank.errors import UserError
from mmrank.losses import inputs


def group_index(group: Tensor) -> tuple[Tensor, Tensor]:
    """(L, N) rows of each value of (n,) group ids, padded with 0, and (L, N) mask of the rows."""
    _, group = group.unique(return_inverse=True)
    # One empty list, where there are no rows.
    sizes = group.bincount(minlength=1).tolist()
    index = pad_sequence([*group.argsort(stable=True).split(sizes)], True, -1)
    return index.clamp(min=0), index >= 0


def columns_of(cls_score: Tensor, target: Tensor, by_head: bool) -> tuple[Tensor, Tensor]:
    """(n,) scores and (n,) labels of 0 and 1 as (n, 1) each; others as they are.

    UserError where 1 might mean the positives or the background, or floats are class indices.
    """
    if cls_score.dim() == 1:
        if target.shape != cls_score.shape:
            raise ValueError(
                f'target must be a 0 or 1 for each cls_score of shape {tuple(cls_score.shape)}, '
                f'got shape {tuple(target.shape)}. Fix: labels of that shape, or cls_score of '
                'shape (n, classes)'
            )
        fits = ((target == 0) | (target == 1)).all()
        if fails(fits):
            raise ValueError(
                f'target must be 0 and 1 for cls_score of shape {tuple(cls_score.shape)}, got '
                f'numbers from {target.min().item()} to {target.max().item()}. Fix: target > 0 if '
                'these are positives, or cls_score of shape (n, classes) for class indices'
            )
        return cls_score.unsqueeze(1), target.unsqueeze(1)
    if by_head or target.dim() != 1 or cls_score.dim() != 2:
        return cls_score, target
    if target.is_floating_point():
        raise UserError(
            f'target of shape {tuple(target.shape)} must be class indices for cls_score of shape '
            f'{tuple(cls_score.shape)}, got {target.dtype}. Fix: loss(cls_score, target.long()); '
            'labels of 0 and 1 have the shape of the scores'
        )
    if cls_score.size(1) == 1:
        raise UserError(
            f'target of shape {tuple(target.shape)} for cls_score of shape '
            f'{tuple(cls_score.shape)}: 1 may be the positive or, as the index of a class, the '
            'background. Fix: loss(cls_score[:, 0], target) if 1 is the positive; '
            'loss(cls_score, target, avg_factor=1) if 0 is the one class and 1 the background, as '
            'heads call it'
        )
    return cls_score, target


def class_indices(target: Tensor, num_classes: int, highest: int) -> Tensor:
    """(n,) labels as int64, from 0 to ``highest``, C or C - 1; else ValueError.

    On a GPU it is a device-side assertion, which does not make the host wait.
    """
    if target.is_floating_point():
        inputs.refuse_nan('target', target, 'give each row the index of its class')
    else:
        target = target.long()  # a smaller type would wrap the number of classes
    fits = (target >= 0) & (target <= highest)
    if target.is_floating_point():
        fits &= target == target.floor()
    if fails(fits.all()):
        background = f' ({num_classes} = background)' if highest == num_classes else ''
        raise ValueError(
            f'target holds class indices from {target.min().item()} to {target.max().item()}, but '
            f'they must be whole numbers from 0 to {highest}: the scores have {num_classes} '
            f'classes{background}; set num_classes of the head to the number of classes of the '
            'data set. Embeddings and their classes go into '
            'mmrank.EmbeddingLoss(loss)(embeddings, classes)'
        )
    return target.long()


def one_vs_all(target: Tensor, num_classes: int) -> Tensor:
    """(n, C) bool of (n,) class indices, C = background, or of (n, C) labels; else ValueError."""
    if target.dim() == 2 and target.size(1) == num_classes:
        if target.is_floating_point():
            inputs.refuse_nan('target', target, 'give each class 0 or 1')
        return target > 0
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
    if not cls_score.is_floating_point():
        raise TypeError(
            f'cls_score must be of a float dtype, got {cls_score.dtype}; call cls_score.float()'
        )
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
        inputs.refuse_nan('weight', weight, 'give 0 to a row that should not count')
