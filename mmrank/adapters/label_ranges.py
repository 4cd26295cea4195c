"""Refuses labels and boxes that a library would train on as something else."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.errors import UserError

# Boxes in fractions may end a little beyond their image; those in pixels go on.
_LARGEST_FRACTION = 2.0


def check_objects(
    labels: Sequence[Tensor], boxes: Sequence[Tensor], num_classes: int, option: str
) -> None:
    """Check labels that count from 0, and boxes in fractions; ``option`` sets the classes."""
    fix = f'number the classes from 0, not by category id of COCO, or a larger {option}'
    check_labels(labels, 0, num_classes - 1, fix)
    found = _ends(boxes)
    if found is not None and found[1] > _LARGEST_FRACTION:
        raise UserError(
            f'the boxes of a batch reach to {found[1]:.4g}, and this model takes (centre x, centre '
            'y, width, height) in fractions of the image, up to 1. Fix: divide x and width by the '
            'width of the image, y and height by its height'
        )


def check_labels(labels: Sequence[Tensor], least: int, most: int, fix: str) -> None:
    """Refuse, by a UserError, class labels of images outside of ``[least, most]``.

    A compiled step does not look.
    """
    found = _ends(labels)
    if found is not None and (found[0] < least or found[1] > most):
        raise UserError(
            f'the labels of a batch are {found[0]:.0f} to {found[1]:.0f}, but the classes of this '
            f'model have {least} to {most}. Fix: {fix}'
        )


def _ends(values: Sequence[Tensor]) -> tuple[float, float] | None:
    parts = [] if torch.compiler.is_compiling() else [x.flatten() for x in values if x.numel()]
    if not parts:
        return None
    # One wait for the device.
    least, most = torch.stack(torch.aminmax(torch.cat(parts))).tolist()
    return least, most
