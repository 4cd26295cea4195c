"""The classes of every item of a multi-label data set, through wrappers."""

import numpy as np
from mmengine.dataset import ConcatDataset, RepeatDataset


def label_pairs(dataset: object) -> tuple[np.ndarray, np.ndarray]:
    """Return which items have which classes; an item may have none.

    No image is loaded.

    Args:
        dataset: Its ``get_data_info(index)`` has ``gt_score``, (C,) numbers
            of which those > 0 are the classes, or ``gt_label``, one class index or several; or is
            mmengine's ``ConcatDataset`` or ``RepeatDataset`` of such.

    Returns:
        Two int64 arrays of one length, item by item: items and classes.

    Raises:
        TypeError: If its labels are unknown.
    """
    if isinstance(dataset, ConcatDataset):
        parts = [label_pairs(part) for part in dataset.datasets]
        starts = np.cumsum([0, *map(len, dataset.datasets)])
        return _joined(parts, starts)
    if isinstance(dataset, RepeatDataset):
        part, size = label_pairs(dataset.dataset), len(dataset.dataset)
        return _joined([part] * dataset.times, np.arange(dataset.times) * size)
    if not hasattr(dataset, 'get_data_info'):
        raise TypeError(
            f'{type(dataset).__name__} has no get_data_info(index), so the '
            'classes of its images are unknown. Fix: use a data set derived '
            "from mmpretrain's BaseDataset"
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


def _joined(parts, starts) -> tuple[np.ndarray, np.ndarray]:
    items = [items + start for (items, _), start in zip(parts, starts)]
    return np.concatenate(items), np.concatenate([c for _, c in parts])
