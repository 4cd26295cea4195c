"""Checks the indices of lists into state that is kept per class."""

import torch
from torch import Tensor


def check_rows(name: str, rows: Tensor, lists: int, size: int) -> None:
    """Refuse indices that do not fit the state.

    Args:
        name: What the caller calls them.
        rows: What should be (lists,) integers in ``[0, size)``.
        lists: Number of lists.
        size: Number of rows of the state.

    Raises:
        TypeError: If they are not integers.
        ValueError: If there are more or fewer than ``lists``, or one is out
            of range; on a GPU the latter is a device-side assertion.
    """
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise TypeError(
            f'{name} must be integers, got {rows.dtype}; call {name}.long()'
        )
    if rows.shape != (lists,):
        raise ValueError(
            f'{name} must be ({lists},), one for each list, got shape '
            f'{tuple(rows.shape)}'
        )
    if rows.numel() == 0:
        return
    fits = ((rows >= 0) & (rows < size)).all()
    if rows.device.type != 'cpu':
        torch._assert_async(fits)
    elif not fits:
        raise ValueError(
            f'{name} holds indices from {int(rows.min())} to '
            f'{int(rows.max())}, but there are {size} classes; set '
            'num_classes to the number of classes of the training set'
        )
