"""Classes of the items of a data set."""

import numpy as np

from mmrank.errors import UserError, UserTypeError


def label_pairs(dataset: object) -> tuple[np.ndarray, np.ndarray]:
    """Return two int64 arrays, item by item: which items have which classes.

    ``get_data_info(index)`` of the data set, or of one in a wrapper of mmengine, has ``gt_score``,
    (C,) numbers of which those > 0 are the classes, or ``gt_label``, one class index, several or
    none. No image is loaded.
    """
    if not hasattr(dataset, 'get_data_info'):
        raise UserTypeError(
            f'{type(dataset).__name__} has no get_data_info(index), so the classes of its items '
            "are unknown. Fix: use a data set derived from mmpretrain's BaseDataset, or let it "
            'return dict(gt_label=class index)'
        )
    classes = [_classes(dataset, index) for index in range(len(dataset))]
    items = np.repeat(np.arange(len(classes)), [len(c) for c in classes])
    return items, np.concatenate([np.zeros(0, dtype=np.int64), *classes])


def class_labels(dataset: object) -> np.ndarray:
    """Return the class index of every item, (N,) int64; see :func:`label_pairs`."""
    items, classes = label_pairs(dataset)
    counts = np.bincount(items, minlength=len(dataset))
    if (counts != 1).any():
        index = int((counts != 1).argmax())
        raise UserError(
            f'item {index} of {type(dataset).__name__} has {counts[index]} classes, and exactly '
            'one is needed. Fix: leave it out, or use mmrank.MultiLabelPositiveSampler'
        )
    return classes


def _classes(dataset: object, index: int) -> np.ndarray:
    info = dataset.get_data_info(index)
    if 'gt_score' in info:
        return np.flatnonzero(np.asarray(info['gt_score']) > 0)
    labels = np.atleast_1d(info.get('gt_label', 'unknown'))
    if labels.size and (labels.dtype.kind not in 'iu' or labels.min() < 0):
        raise UserError(
            f'item {index} of {type(dataset).__name__} has gt_label={labels.tolist()!s:.80}, not '
            'class indices from 0 on. Fix: leave items without a class out of the data set, and '
            'number the classes from 0'
        )
    return labels.astype(np.int64).ravel()
