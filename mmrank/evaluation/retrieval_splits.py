"""Random galleries: a few images of each class, all others are queries."""

from collections.abc import Iterator

import torch
from torch import Tensor


def random_galleries(
    labels: Tensor, per_class: int, splits: int, seed: int
) -> Iterator[Tensor]:
    """Draw the gallery several times, as VehicleID's authors evaluate.

    Liu et al., Deep Relative Distance Learning, CVPR 2016, 5.2: one image of
    each vehicle is the gallery, all others are queries, repeated ten times.

    Args:
        labels: (N,) integers.
        per_class: Gallery images of each class, at least 1. A class of no
            more images gives no query.
        splits: Number of galleries.
        seed: Seed; the galleries depend on it and on the labels alone.

    Yields:
        (N,) bool masks on the labels' device, True in the gallery.
    """
    g = torch.Generator().manual_seed(seed)
    for _ in range(splits):
        order = torch.randperm(labels.numel(), generator=g).to(labels.device)
        # A stable sort by class keeps the random order inside each class.
        order = order[labels[order].argsort(stable=True)]
        ordered = labels[order]
        place = torch.arange(ordered.numel(), device=labels.device)
        place -= torch.searchsorted(ordered, ordered)
        yield torch.zeros_like(labels, dtype=torch.bool).scatter_(
            0, order, place < per_class
        )
