"""Accuracy, as a whole and class by class."""

from collections.abc import Sequence

import torch
from torch import Tensor


def count_hits(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Right answers and samples of each class.

    Args:
        predicted: (n,) int64.
        labels: (n,) int64 in ``[0, num_classes)``.
        num_classes: C.

    Returns:
        (2, C) int64; those of several ranks may be added.
    """
    return torch.stack(
        [
            torch.bincount(x, minlength=num_classes)
            for x in (labels[predicted == labels], labels)
        ]
    )


def accuracies(
    hits: Tensor, classes: Sequence[str] | None, per_class: bool
) -> dict[str, float]:
    """Figures in percent.

    Args:
        hits: (2, C) of :func:`count_hits`.
        classes: C names, or None for numbers.
        per_class: Also give the accuracy of each class.

    Returns:
        ``accuracy``; ``mean_class_accuracy`` over the classes that have
        samples; with ``per_class`` ``accuracy/NAME`` of those.
    """
    right, all_ = (x.double() for x in hits.cpu())
    there = all_ > 0
    share = 100 * right[there] / all_[there]
    figures = dict(
        accuracy=float(100 * right.sum() / all_.sum()),
        mean_class_accuracy=float(share.mean()),
    )
    if per_class:
        indices = there.nonzero()[:, 0].tolist()
        names = [classes[i] if classes else str(i) for i in indices]
        figures |= {
            f'accuracy/{name}': float(x) for name, x in zip(names, share)
        }
    return figures
