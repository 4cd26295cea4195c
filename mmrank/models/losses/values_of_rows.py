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
