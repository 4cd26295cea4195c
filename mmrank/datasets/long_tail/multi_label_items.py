"""Items of multi-label data sets, and what their labels must be."""

from collections.abc import Sequence

import numpy as np

from mmrank.errors import UserError


def multi_label_items(paths: Sequence[str], targets: np.ndarray) -> list[dict]:
    """Items that any head takes.

    Args:
        paths: N image files.
        targets: (N, C) of 0 and 1.

    Returns:
        For each ``img_path``, ``gt_label``, the list of its classes, and ``gt_score``, (C,)
        float32.
    """
    return [
        dict(img_path=path, gt_label=np.flatnonzero(row).tolist(), gt_score=row.astype(np.float32))
        for path, row in zip(paths, targets)
    ]


def check_every_class(targets: np.ndarray, classes: Sequence[str], split: str, source: str) -> None:
    """Refuse a split in which a class cannot be ranked.

    Args:
        targets: (N, C) of 0 and 1.
        classes: Names of the C classes.
        split: Name of the split, for the message.
        source: Where the labels come from.

    Raises:
        UserError: If a class has no positive or no negative, naming
            all such classes.
    """
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
