"""Labels of a classifier: checked, and one against the rest."""

import torch
from torch import Tensor


def one_vs_all(target: Tensor, num_classes: int) -> Tensor:
    """Positives of every class from class indices or a multi-label matrix.

    Args:
        target: (n,) class indices, ``num_classes`` = background, or (n, C)
            of 0 and 1.
        num_classes: C.

    Returns:
        (n, C) bool.

    Raises:
        ValueError: If the shape does not fit, a label is NaN, or an index is
            no whole number in ``[0, C]``. On a GPU the check of the values is
            a device-side assertion, which does not make the host wait.
    """
    if target.dim() == 2 and target.size(1) == num_classes:
        refuse_nan('target', target, 'give each class 0 or 1')
        return target > 0
    if target.dim() != 1:
        raise ValueError(
            f'target must be (n,) class indices or (n, {num_classes}) labels '
            f'for {num_classes} classes, got shape {tuple(target.shape)}'
        )
    check_class_indices(target, num_classes, num_classes)
    classes = torch.arange(num_classes, device=target.device)
    return target.unsqueeze(1) == classes


def check_class_indices(
    target: Tensor, num_classes: int, highest: int
) -> None:
    """Refuse labels that are no class indices.

    Args:
        target: (n,) numbers, of any dtype.
        num_classes: C, for the message.
        highest: Largest index that is allowed: C, which is the background,
            or C - 1.

    Raises:
        ValueError: If one is NaN, no whole number, or outside of ``[0,
            highest]``; on a GPU it is a device-side assertion, which does not
            make the host wait.
    """
    refuse_nan('target', target, 'give each row the index of its class')
    if not target.numel():
        return
    fits = (target >= 0) & (target <= highest)
    if target.is_floating_point():
        fits &= target == target.floor()
    if target.device.type != 'cpu':
        torch._assert_async(fits.all())
    elif not fits.all():
        background = f' ({num_classes} = background)'
        raise ValueError(
            f'target holds class indices from {target.min().item()} to '
            f'{target.max().item()}, but they must be whole numbers from 0 to '
            f'{highest}: the scores have {num_classes} '
            f'classes{background if highest == num_classes else ""}; set '
            'num_classes of the head to the number of classes of the data set'
        )


def refuse_nan(name: str, values: Tensor, fix: str) -> None:
    """Refuse NaN, which compares as False and would pass for a label.

    Args:
        name: Of the argument.
        values: Numbers of any shape and dtype.
        fix: What to do, for the message.

    Raises:
        ValueError: If a value is NaN; on a GPU it is a device-side assertion,
            which does not make the host wait.
    """
    if not values.is_floating_point() or not values.numel():
        return
    broken = values.isnan()
    if values.device.type != 'cpu':
        torch._assert_async(~broken.any())
    elif broken.any():
        raise ValueError(
            f'{name} is NaN at {broken.nonzero()[0].tolist()}, and in '
            f'{int(broken.sum())} of {values.numel()} entries; {fix}'
        )


def check_classified(
    cls_score: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    num_classes: int | None = None,
    weight_per_class: bool = True,
) -> None:
    """Refuse scores, labels and weights that do not belong together.

    The values of the labels are checked by
    :func:`one_vs_all`.

    Args:
        cls_score: What should be (n, C) floats.
        target: What should be (n,) or (n, C) labels.
        weight: What should be (n,) or (n, C) weights, or None.
        num_classes: C, or None if any number fits.
        weight_per_class: Whether (n, C) weights are allowed.

    Raises:
        ValueError: If shapes or devices do not fit, or a weight is NaN; on a
            GPU the latter is a device-side assertion.
        TypeError: If the scores are not of a float dtype.
    """
    if not cls_score.is_floating_point():
        raise TypeError(
            f'cls_score must be of a float dtype, got {cls_score.dtype}; call '
            'cls_score.float()'
        )
    if cls_score.dim() != 2:
        raise ValueError(
            f'cls_score must be (n, classes), got shape '
            f'{tuple(cls_score.shape)}'
        )
    rows, classes = cls_score.shape
    if num_classes not in (None, classes):
        raise ValueError(
            f'num_classes={num_classes} but cls_score has {classes} '
            'columns; set num_classes of the loss and the head to the '
            'same value'
        )
    allowed = {'target': [(rows,), (rows, classes)], 'weight': [(rows,)]}
    if weight_per_class:
        allowed['weight'].append((rows, classes))
    for name, values in (('target', target), ('weight', weight)):
        if values is None:
            continue
        if tuple(values.shape) not in allowed[name]:
            shapes = ' or '.join(map(str, allowed[name]))
            raise ValueError(
                f'{name} must have shape {shapes} for cls_score of shape '
                f'{tuple(cls_score.shape)}, got {tuple(values.shape)}; give '
                f'one {name} for each row of the scores'
            )
        if values.device != cls_score.device:
            raise ValueError(
                f'{name} is on {values.device} but cls_score on '
                f'{cls_score.device}; call {name}.to(cls_score.device)'
            )
    if weight is not None:
        refuse_nan('weight', weight, 'give 0 to a row that should not count')


def split_targets(
    logits: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One list of logits and targets as a ranking function takes it.

    Args:
        logits: Float scores of any shape.
        targets: Same shape; > 0 positive, 0 negative, < 0 (or NaN) left out.

    Returns:
        (P,) positives, (N,) all scores, (N,) bool mask of the negatives and
        (P,) targets of the positives.

    Raises:
        ValueError: If the shapes differ.
        TypeError: If the logits are not of a float dtype.
    """
    if not logits.is_floating_point():
        raise TypeError(
            f'logits must be of a float dtype, got {logits.dtype}; call '
            'logits.float()'
        )
    if logits.shape != targets.shape:
        raise ValueError(
            'logits and targets must have one shape, got '
            f'{tuple(logits.shape)} and {tuple(targets.shape)}'
        )
    scores, targets = logits.reshape(-1), targets.reshape(-1)
    index = (targets > 0).nonzero()[:, 0]
    return scores[index], scores, targets == 0, targets[index]
