"""Whether the labels of a classification data set can be learnt from."""

from collections.abc import Sequence

import numpy as np
from mmengine.dataset import ConcatDataset, RepeatDataset

from mmrank.errors import UserError


def check_labels(dataset, split: str = 'train') -> np.ndarray:
    """Check every label of a data set, without loading an image; return them, (N, C) of 0 and 1.

    ``get_data_info(index)`` has ``gt_score``, (C,) of 0 and 1, or ``gt_label``, one class index or
    a list of them; ``metainfo['classes']`` names the C classes. mmengine's ``ConcatDataset`` and
    ``RepeatDataset`` are seen through. Every class needs a positive and a negative. ``split`` is
    for messages.
    """
    targets = _targets_of_parts(dataset, split)
    while isinstance(dataset, RepeatDataset):
        dataset = dataset.dataset
    classes = _classes(dataset) or [f'class {i}' for i in range(targets.shape[1])]
    check_every_class(targets, classes, split, type(dataset).__name__)
    return targets


def _targets_of_parts(dataset, split: str) -> np.ndarray:
    """(N, C) checked targets of a data set, which may be a wrapper of others."""
    while isinstance(dataset, RepeatDataset):
        dataset = dataset.dataset
    if isinstance(dataset, ConcatDataset):
        parts = [_targets_of_parts(part, split) for part in dataset.datasets]
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise UserError(
                f'the {split} split joins data sets of {widths} classes. Fix: '
                'set the same `classes` for all'
            )
        return np.concatenate(parts)
    return _targets(dataset, split, type(dataset).__name__)


def _classes(dataset) -> list[str]:
    return list((getattr(dataset, 'metainfo', None) or {}).get('classes', ()))


def _targets(dataset, split: str, name: str) -> np.ndarray:
    size = len(_classes(dataset))
    rows = []
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        place = f'item {index} ({info.get("img_path", "an array")})'
        if 'gt_score' in info:
            row = np.asarray(info['gt_score'], dtype=float).reshape(-1)
            size = size or len(row)
            if len(row) != size or not np.isin(row, (0, 1)).all():
                raise UserError(
                    f'{place} of the {split} split of {name} has gt_score={row.tolist()[:20]}, not '
                    f'{size} numbers 0 or 1. Fix: map other values to 0 or 1 in the data set, one '
                    "for each class of metainfo['classes']"
                )
        elif 'gt_label' in info:
            labels = np.asarray(info['gt_label']).reshape(-1)
            if not size:
                raise UserError(
                    f'{name} does not name its classes, so their number is '
                    'unknown. Fix: set metainfo=dict(classes=[...])'
                )
            if (
                (len(labels) and labels.dtype.kind not in 'iu')
                or len(set(labels.tolist())) < len(labels)
                or not ((labels >= 0) & (labels < size)).all()
            ):
                raise UserError(
                    f'{place} of the {split} split of {name} has gt_label={labels.tolist()[:20]}, '
                    f'not class indices from 0 to {size - 1}, each once. Fix: correct the '
                    "annotation, or metainfo['classes']"
                )
            row = np.zeros(size)
            row[labels.astype(np.int64)] = 1
        else:
            raise UserError(
                f'{place} of the {split} split of {name} has neither '
                f'gt_score nor gt_label, only {sorted(info)}'
            )
        rows.append(row)
    if not rows:
        raise UserError(f'the {split} split of {name} has no item')
    return np.stack(rows).astype(np.int64)


def check_every_class(targets: np.ndarray, classes: Sequence[str], split: str, source: str) -> None:
    """Refuse a split in which a class cannot be ranked, by its (N, C) targets of 0 and 1."""
    positives = targets.sum(0)
    for kind, bad in (('positive', positives == 0), ('negative', positives == len(targets))):
        if bad.any():
            names = [name for name, is_bad in zip(classes, bad) if is_bad]
            raise UserError(
                f'the {split} split of {source} has {len(targets)} images and no {kind} of '
                f'{_shown(names)}, whose average precision is undefined. Fix: use another split, '
                'or remove these classes from `classes`'
            )


def _shown(names: list[str]) -> str:
    """The first twenty names, each cut off where it is long."""
    more = [f'{len(names) - 20} more'] if len(names) > 20 else []
    return ', '.join([name[:80] for name in names[:20]] + more)
