"""The class of every image of a data set, through wrappers."""

import numpy as np
from mmengine.dataset import ConcatDataset, RepeatDataset


def class_labels(dataset: object) -> np.ndarray:
    """Return the class index of every item.

    Args:
        dataset: Has ``get_gt_labels()`` or ``get_cat_ids(index)``, or is mmengine's
            ``ConcatDataset`` or ``RepeatDataset`` of such.

    Returns:
        (N,) int64.

    Raises:
        TypeError: If it has neither method.
        ValueError: If an item has not exactly one class.
    """
    # Before the methods: a wrapper passes get_cat_ids on, item by item.
    if isinstance(dataset, ConcatDataset):
        parts = [class_labels(part) for part in dataset.datasets]
        return np.concatenate(parts)
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
    raise TypeError(
        f'{type(dataset).__name__} has neither get_gt_labels() nor '
        'get_cat_ids(index), so the classes of its images are unknown. Fix: '
        "use a data set derived from mmpretrain's BaseDataset"
    )
