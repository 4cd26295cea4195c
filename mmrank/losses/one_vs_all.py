"""One-vs-all labels of every class."""

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
        ValueError: If the shape does not fit or an index is outside
            ``[0, C]``. On a GPU the index check is a device-side assertion,
            which does not make the host wait.
    """
    if target.dim() == 2 and target.size(1) == num_classes:
        return target > 0
    if target.dim() != 1:
        raise ValueError(
            f'target must be (n,) class indices or (n, {num_classes}) labels '
            f'for {num_classes} classes, got shape {tuple(target.shape)}'
        )
    if target.numel():
        fits = ((target >= 0) & (target <= num_classes)).all()
        if target.device.type != 'cpu':
            torch._assert_async(fits)
        elif not fits:
            raise ValueError(
                f'target holds class indices from {int(target.min())} to '
                f'{int(target.max())}, but the scores have {num_classes} '
                f'classes ({num_classes} = background); set num_classes of '
                'the head to the number of classes of the data set'
            )
    classes = torch.arange(num_classes, device=target.device)
    return target.unsqueeze(1) == classes
