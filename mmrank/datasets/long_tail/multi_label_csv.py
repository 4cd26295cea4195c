"""A table of images and their classes. Imports mmpretrain."""

import os
from collections.abc import Sequence

import numpy as np
from mmengine.fileio import join_path
from mmpretrain.datasets import MultiLabelDataset

from mmrank.datasets.checks.data_report import shown
from mmrank.datasets.checks.label_check import check_every_class
from mmrank.datasets.long_tail.read_chest_xray14 import read_table
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.retrieval.image_lists import PATH_FIX
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

    #: Column of the image's path.
    image_column = 'image'

    def load_data_list(self) -> list[dict]:
        """Return ``img_path``, ``gt_label`` and ``gt_score`` of each image."""
        images, targets = self._read()
        check_every_class(targets, self.CLASSES, 'only', self.ann_file)
        prefix = self.img_prefix
        paths = [join_path(prefix, i) if prefix else i for i in images]
        missing = [path for path in paths if not os.path.isfile(path)]
        if missing:
            raise UserError(
                f'{len(missing)} of {len(paths)} images of {self.ann_file} are missing, like '
                f'{shown(missing[:3])}. Fix: check data_prefix, or correct the table'
            )
        return multi_label_items(paths, targets)

    def _read(self) -> tuple[list[str], np.ndarray]:
        header, rows = read_table(self.ann_file, 'ann_file')
        if self.CLASSES is None:
            names = [name for name in header if name != self.image_column]
            self._metainfo['classes'] = tuple(names)
        wanted = (self.image_column, *self.CLASSES)
        missing = [name for name in wanted if name not in header]
        if missing or not self.CLASSES:
            raise UserError(
                f'{self.ann_file} must have a column {self.image_column!r} and one for each class; '
                f'missing: {shown(missing)}, there are {shown(header)}. Fix: correct '
                'classes or the first line of the table'
            )
        targets = np.zeros((len(rows), len(self.CLASSES)), dtype=np.int64)
        for target, (line, row) in zip(targets, rows):
            for column, name in enumerate(self.CLASSES):
                cell = row[name]
                if cell not in _BITS:
                    raise UserError(
                        f'{self.ann_file}:{line}: {name!r:.80} is {cell!r:.80}, not 0 or 1. Fix: '
                        'replace other values, such as -1 for uncertain or an empty cell, by 0 or 1'
                    )
                target[column] = _BITS[cell]
        if not rows:
            raise UserError(f'{self.ann_file} lists no image. Fix: check ann_file')
        images = [row[self.image_column] for _, row in rows]
        for (line, _), image in zip(rows, images):
            if fault := path_fault(image):
                raise UserError(
                    f'{self.ann_file}:{line}: {self.image_column!r} is '
                    f'{image!r:.200}, which {fault}. Fix: {PATH_FIX}'
                )
        return images, targets


def multi_label_items(paths: Sequence[str], targets: np.ndarray) -> list[dict]:
    """Items that any head takes, of N image files and (N, C) targets of 0 and 1.

    Each has ``img_path``, ``gt_label``, the list of its classes, and ``gt_score``, (C,) float32.
    """
    return [
        dict(img_path=path, gt_label=np.flatnonzero(row).tolist(), gt_score=row.astype(np.float32))
        for path, row in zip(paths, targets)
    ]
