"""Values of the positives' boxes, laid out by row."""

import torch
from torch import Tensor


def values_of_rows(values: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """Spread one value for each row with a class over all rows.

    Args:
        values: (n_pos,) values in row order.
        target: (n,) class indices; [0, C) is a class.
        num_classes: C.

    Returns:
        (n,) values, 0 in rows without a class; differentiable in ``values``.

    Raises:
        ValueError: If the shapes do not fit. On a GPU the number of values is
            not compared with that of the rows, which would make the host
            wait.
    """
    if target.dim() != 1:
        raise ValueError(
            'values of boxes need (n,) class indices, one box a row, got a '
            f'target of shape {tuple(target.shape)}'
        )
    has_class = (target >= 0) & (target < num_classes)
    if values.dim() != 1 or (
        target.device.type == 'cpu' and values.numel() != int(has_class.sum())
    ):
        raise ValueError(
            'the values of the boxes must be (n_pos,), one for each row '
            f'with a class, got shape {tuple(values.shape)} for '
            f'{int(has_class.sum())} such rows'
        )
    # Not by masked_scatter, whose backward waits for the device.
    slot = has_class.cumsum(0).mul_(has_class)
    return torch.cat([values.new_zeros(1), values]).gather(0, slot)


def box_values(
    loss,
    target: Tensor,
    num_classes: int,
    quality: Tensor | None,
    box_loss: Tensor | None,
) -> Tensor | None:
    """What a loss wants to know of the boxes, laid out by row.

    Args:
        loss: Loss with ``box_input``: None, ``'quality'`` or ``'loss'``.
        target: (n,) class indices; [0, C) is a class.
        num_classes: C.
        quality: (n_pos,) qualities that the head passed, or None.
        box_loss: (n_pos,) box losses that the head passed, or None.

    Returns:
        (n,) values, or None if the loss takes none.

    Raises:
        ValueError: If the head passed something else than the loss takes.
    """
    given = {'quality': quality, 'box_loss': box_loss}
    wanted = {'quality': 'quality', 'loss': 'box_loss'}
    values = given.pop(wanted.get(loss.box_input), None)
    for name, other in given.items():
        if other is not None:
            raise ValueError(
                f'{type(loss).__name__} takes no {name}, got shape '
                f'{tuple(other.shape)}'
            )
    if loss.box_input is None:
        return None
    if values is None:
        raise ValueError(
            f'{type(loss).__name__} needs the boxes of the positives '
            f'({loss.box_input!r}), which this head does not pass; use '
            "type='mmrank.ListwiseHead' or 'mmrank.ListwiseBBoxHead'"
        )
    return values_of_rows(values, target, num_classes)
