"""Classes of the items of a data set, and whether they can be learnt: for samplers and hooks."""

from collections.abc import Sequence

import numpy as np

from mmrank.errors import UserError, UserTypeError


def class_names(dataset: object) -> list[str]:
    """Names of the classes of a data set, none if it has no ``metainfo['classes']``."""
    return list((getattr(dataset, 'metainfo', None) or {}).get('classes') or ())


def label_pairs(dataset: object) -> tuple[np.ndarray, np.ndarray]:
    """Return two int64 arrays, item by item: which items have which classes.

    ``get_data_info(index)`` of the data set, or of one in a wrapper of mmengine, has ``gt_score``,
    (C,) of 0 and 1, or ``gt_label``, one class index, several or none. No image is loaded.
    """
    if not hasattr(dataset, 'get_data_info'):
        raise UserTypeError(
            f'{type(dataset).__name__} has no get_data_info(index), so the classes of its items '
            "are unknown. Fix: use a data set derived from mmpretrain's BaseDataset, or let it "
            'return dict(gt_label=class index)'
        )
    size = len(class_names(dataset))
    classes = [_classes(dataset, index, size) for index in range(len(dataset))]
    items = np.repeat(np.arange(len(classes)), [len(c) for c in classes])
    return items, np.concatenate([np.zeros(0, dtype=np.int64), *classes])


def class_labels(dataset: object) -> np.ndarray:
    """Return the class index of every item, (N,) int64; see :func:`label_pairs`."""
    items, classes = label_pairs(dataset)
    counts = np.bincount(items, minlength=len(dataset))
    if (counts != 1).any():
        index = int((counts != 1).argmax())
        what = f'item {index} of {type(dataset).__name__} has {counts[index]} classes'
        raise UserError(f'{what}, and exactly one is needed', 'leave it out')
    return classes


def _classes(dataset: object, index: int, size: int) -> np.ndarray:
    info = dataset.get_data_info(index)
    place = f'item {index} of {type(dataset).__name__}'
    if 'img_path' in info:
        place += f' ({info["img_path"]})'
    if 'gt_score' in info:
        row = np.atleast_1d(info['gt_score'])
        if len(row) != (size or len(row)) or not ((row == 0) | (row == 1)).all():
            what = f'{place} has gt_score={row.tolist()!s:.80}, not {size} numbers 0 or 1'
            fix = "map other values to 0 or 1, one for each class of metainfo['classes']"
            raise UserError(what, fix)
        return np.flatnonzero(row)
    labels = np.atleast_1d(info.get('gt_label', 'unknown'))
    if labels.size and (
        labels.dtype.kind not in 'iu'
        or labels.min() < 0
        or labels.max() >= (size or np.inf)
        or len({*labels.tolist()}) < labels.size
    ):
        raise UserError(
            f'{place} has gt_label={labels.tolist()!s:.80}, not class indices from 0 to '
            f'{size - 1 if size else "C - 1"}, each once. Fix: leave items without a class out of '
            "the data set, and number the classes from 0, in the order of metainfo['classes']"
        )
    return labels.astype(np.int64).ravel()


def check_labels(dataset, split: str = 'train') -> np.ndarray:
    """Check every label of a data set, without loading an image; return them, (N, C) of 0 and 1.

    ``metainfo['classes']`` names the C classes. Every class needs a positive and a negative. For
    the labels see :func:`label_pairs`.
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
