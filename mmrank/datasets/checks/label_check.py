"""Whether the labels of a classification data set can be learnt from."""

from collections.abc import Iterator, Sequence

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
    parts = [*_parts(dataset)]
    tables = [_targets(part, split) for part in parts]
    widths = sorted({table.shape[1] for table in tables})
    if len(widths) > 1:
        raise UserError(
            f'the {split} split joins data sets of {widths} classes. Fix: '
            'set the same `classes` for all'
        )
    targets = np.concatenate(tables)
    classes = _classes(parts[0]) or [f'class {i}' for i in range(widths[0])]
    check_every_class(targets, classes, split, type(dataset).__name__)
    return targets


def _parts(dataset) -> Iterator:
    """The data sets within wrappers."""
    if isinstance(dataset, RepeatDataset):
        yield from _parts(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _parts(part)
    else:
        yield dataset


def _classes(dataset) -> list[str]:
    return list((getattr(dataset, 'metainfo', None) or {}).get('classes', ()))


def _targets(dataset, split: str) -> np.ndarray:
    name = f'the {split} split of {type(dataset).__name__}'
    if not len(dataset):
        raise UserError(f'{name} has no item')
    size = len(_classes(dataset))
    rows = []
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        place = f'item {index} ({info.get("img_path", "an array")}) of {name}'
        if 'gt_score' in info:
            row = np.asarray(info['gt_score'], dtype=float).reshape(-1)
            size = size or len(row)
            if len(row) != size or not np.isin(row, (0, 1)).all():
                raise UserError(
                    f'{place} has gt_score={row.tolist()[:20]}, not {size} numbers 0 or 1. Fix: '
                    "map other values to 0 or 1, one for each class of metainfo['classes']"
                )
        elif 'gt_label' in info:
            labels = np.asarray(info['gt_label']).reshape(-1)
            if not size:
                raise UserError(
                    f'{name} does not name its classes. Fix: metainfo=dict(classes=[...])'
                )
            values = labels.tolist()
            if len({*values}) < len(values) or not all(
                type(x) is int and 0 <= x < size for x in values
            ):
                raise UserError(
                    f'{place} has gt_label={values[:20]}, not class indices from 0 to '
                    f"{size - 1}, each once. Fix: correct the annotation, or metainfo['classes']"
                )
            row = np.zeros(size)
            row[labels.astype(np.int64)] = 1
        else:
            raise UserError(f'{place} has neither gt_score nor gt_label, only {sorted(info)}')
        rows.append(row)
    return np.stack(rows).astype(np.int64)


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
