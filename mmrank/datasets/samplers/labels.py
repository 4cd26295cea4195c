"""Classes of the items of a data set, through mmengine's wrappers."""

import numpy as np
from mmengine.dataset import ConcatDataset, RepeatDataset

from mmrank.errors import UserTypeError


def class_labels(dataset: object) -> np.ndarray:
    """Return the class index of every item, (N,) int64.

    The data set has ``get_gt_labels()`` or ``get_cat_ids(index)``, or is mmengine's
    ``ConcatDataset`` or ``RepeatDataset`` of such.
    """
    # Before the methods: a wrapper passes get_cat_ids on, item by item.
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([class_labels(part) for part in dataset.datasets])
    if isinstance(dataset, RepeatDataset):
        return np.tile(class_labels(dataset.dataset), dataset.times)
    if hasattr(dataset, 'get_gt_labels'):
        labels = np.asarray(dataset.get_gt_labels())
        if labels.shape != (len(dataset),):
            raise ValueError(
                f'get_gt_labels() of {type(dataset).__name__} must return one class for each of '
                f'the {len(dataset)} items, got shape {labels.shape}'
            )
        return labels.astype(np.int64)
    if hasattr(dataset, 'get_cat_ids'):
        found = [dataset.get_cat_ids(i) for i in range(len(dataset))]
        for index, classes in enumerate(found):
            if len(classes) != 1:
                raise ValueError(
                    f'item {index} of {type(dataset).__name__} has the '
                    f'classes {list(classes)}; exactly one is needed'
                )
        return np.array([c[0] for c in found], dtype=np.int64)
    raise UserTypeError(
        f'{type(dataset).__name__} has neither get_gt_labels() nor '
        'get_cat_ids(index), so the classes of its images are unknown. Fix: '
        "use a data set derived from mmpretrain's BaseDataset"
    )


def label_pairs(dataset: object) -> tuple[np.ndarray, np.ndarray]:
    """Return two int64 arrays, item by item: which items have which classes.

    ``get_data_info(index)`` of the data set has ``gt_score``, (C,) numbers of which those > 0 are
    the classes, or ``gt_label``, one class index, several or none; or it is mmengine's
    ``ConcatDataset`` or ``RepeatDataset`` of such. No image is loaded.
    """
    if isinstance(dataset, ConcatDataset):
        parts, sizes = dataset.datasets, list(map(len, dataset.datasets))
        return _joined([label_pairs(part) for part in parts], sizes)
    if isinstance(dataset, RepeatDataset):
        size = len(dataset.dataset)
        return _joined([label_pairs(dataset.dataset)] * dataset.times, [size] * dataset.times)
    if not hasattr(dataset, 'get_data_info'):
        raise UserTypeError(
            f'{type(dataset).__name__} has no get_data_info(index), so the classes of its images '
            "are unknown. Fix: use a data set derived from mmpretrain's BaseDataset"
        )
    classes = [_classes(dataset.get_data_info(i)) for i in range(len(dataset))]
    items = np.repeat(np.arange(len(classes)), [len(c) for c in classes])
    return items, np.concatenate([np.zeros(0, dtype=np.int64), *classes])


def _classes(info: dict) -> np.ndarray:
    if 'gt_score' in info:
        return np.flatnonzero(np.asarray(info['gt_score']) > 0)
    if 'gt_label' in info:
        return np.asarray(info['gt_label'], dtype=np.int64).reshape(-1)
    raise TypeError(
        f'an item of the data set has neither gt_score nor gt_label, only {sorted(info)}'
    )


def _joined(parts: list[tuple], sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.cumsum([0, *sizes])
    items = [items + start for (items, _), start in zip(parts, starts)]
    return np.concatenate(items), np.concatenate([classes for _, classes in parts])
