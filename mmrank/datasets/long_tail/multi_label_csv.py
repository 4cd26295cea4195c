"""A table of images and their classes. Imports mmpretrain."""

import os
from collections.abc import Sequence

import numpy as np
from mmengine.fileio import join_path
from mmpretrain.datasets import MultiLabelDataset

from mmrank.annotations.findings import shown
from mmrank.annotations.text_tables import read_table
from mmrank.datasets.labels import check_every_class
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.errors import UserError
from mmrank.files import path_fault

_BITS = {'0': 0, '1': 1, '0.0': 0, '1.0': 1}


class MultiLabelCSV(OneSizeBatches, MultiLabelDataset):
    """Multi-label images from a CSV with one column of 0 and 1 a class.

        image,cat,dog
        a.jpg,1,0
        b.jpg,0,0

    Items have ``img_path``, ``gt_label``, the list of classes, and ``gt_score``, (C,) of 0 and 1.

    Args:
        **kwargs: As for ``mmpretrain.BaseDataset``: ``ann_file``, the table, ``data_root``,
            ``data_prefix``, the folder of the images within ``data_root``, ``classes``, the
            columns of the classes in this order (None: all but the image's), ``pipeline``, ...

    Raises:
        UserError: If the table cannot be read, a column or an image is missing, a label is neither
            0 nor 1, or a class has no positive.
    """

    def load_data_list(self) -> list[dict]:
        columns, rows = read_table(self.ann_file, ['image', *(self.CLASSES or ())])
        names = self.CLASSES or [name for name in columns if name != 'image']
        self._metainfo['classes'] = tuple(names)
        paths = []
        targets = []
        for place, row in rows:
            wrong = [name for name in names if row[name] not in _BITS]
            if wrong:
                what = f'{place}: {wrong[0]!r:.80} is {row[wrong[0]]!r:.80}, not 0 or 1'
                fix = 'replace other values, such as -1 for uncertain or an empty cell, by 0 or 1'
                raise UserError(what, fix)
            fault = path_fault(row['image'])
            if fault:
                what = f"{place}: 'image' is {row['image']!r:.200}, which {fault}"
                fix = 'a path within the folder of the images; set data_prefix to that folder'
                raise UserError(what, fix)
            paths.append(join_path(self.img_prefix, row['image']))
            targets.append([_BITS[row[name]] for name in names])
        if not (names and paths):
            what = f'{self.ann_file} has {len(paths)} images and {len(names)} classes'
            raise UserError(what, 'a column for each class, and a line for each image')
        targets = np.array(targets)
        check_every_class(targets, names, 'only', self.ann_file)
        missing = [path for path in paths if not os.path.isfile(path)]
        if missing:
            raise UserError(
                f'{len(missing)} of {len(paths)} images of {self.ann_file} are missing, like '
                f'{shown(missing[:3])}. Fix: check data_prefix, or correct the table'
            )
        return multi_label_items(paths, targets)


def multi_label_items(paths: Sequence[str], targets: np.ndarray) -> list[dict]:
    """Items that any head takes, of N image files and (N, C) targets of 0 and 1.

    Each has ``img_path``, ``gt_label``, the list of its classes, and ``gt_score``, (C,) float32.
    """
    return [
        dict(img_path=path, gt_label=np.flatnonzero(row).tolist(), gt_score=row.astype(np.float32))
        for path, row in zip(paths, targets)
    ]
