"""Whether the labels of a classification data set can be learnt from."""

from collections.abc import Sequence

import numpy as np

from mmrank.datasets.samplers.labels import class_names, label_pairs
from mmrank.errors import UserError


def check_labels(dataset, split: str = 'train') -> np.ndarray:
    """Check every label of a data set, without loading an image; return them, (N, C) of 0 and 1.

    ``metainfo['classes']`` names the C classes. Every class needs a positive and a negative. For
    the labels see :func:`~mmrank.datasets.samplers.labels.label_pairs`.
    """
    names = class_names(dataset)
    if not len(dataset) or not names:
        raise UserError(
            f'the {split} split, a {type(dataset).__name__}, has {len(dataset)} items and names '
            f'{len(names)} classes. Fix: a list with items, and metainfo=dict(classes=[...])'
        )
    items, classes = label_pairs(dataset)
    targets = np.zeros((len(dataset), len(names)), dtype=np.int64)
    targets[items, classes] = 1
    check_every_class(targets, names, split, type(dataset).__name__)
    return targets


def check_every_class(targets: np.ndarray, classes: Sequence[str], split: str, source: str) -> None:
    """Refuse a split in which a class cannot be ranked, by its (N, C) targets of 0 and 1."""
    positives = targets.sum(0)
    for kind, bad in (('positive', positives == 0), ('negative', positives == len(targets))):
        if bad.any():
            names = [name[:80] for name, is_bad in zip(classes, bad) if is_bad]
            more = f' and {len(names) - 20} more' if len(names) > 20 else ''
            raise UserError(
                f'the {split} split of {source} has {len(targets)} images and no {kind} of '
                f'{", ".join(names[:20])}{more}, whose average precision is undefined. Fix: use '
                'another split, or remove these classes from `classes`'
            )
