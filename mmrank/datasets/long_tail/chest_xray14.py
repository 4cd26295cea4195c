"""ChestX-ray14. Imports mmpretrain."""

from collections.abc import Sequence

import numpy as np
from mmengine.fileio import join_path
from mmpretrain.datasets import MultiLabelDataset

from mmrank.checks import one_of
from mmrank.datasets.checks.label_check import check_every_class
from mmrank.datasets.long_tail.multi_label_csv import multi_label_items
from mmrank.datasets.long_tail.read_chest_xray14 import (
    CLASSES,
    Entry,
    find_images,
    read_entries,
    read_image_list,
)
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.retrieval.retrieval_dataset import split_classes

SPLITS = ('train', 'val', 'trainval', 'test')
SPLIT_BY = ('lists', 'patients')


class ChestXray14(OneSizeBatches, MultiLabelDataset):
    """112,120 chest X-rays with 14 findings (Wang et al., CVPR 2017).

    Reads the published ``Data_Entry_2017.csv``, ``train_val_list.txt`` and ``test_list.txt``. Items
    have ``img_path``, ``gt_label``, the list of findings, and ``gt_score``, (C,) of 0 and 1; an
    X-ray without a finding is a negative of all classes.

    No patient is in two splits. The validation patients are taken from the patients of
    ``train_val_list.txt``. ``split_by='patients'`` makes a random split 8:1:1 of all patients
    instead, the sizes of the stable AP paper (which does not say whether it parted patients).

    Args:
        data_root: Folder of the table and the lists.
        split: ``'train'``, ``'val'``, ``'trainval'`` (both) or ``'test'``.
        split_by: ``'lists'`` or ``'patients'``.
        classes: Findings to tell apart, in this order; None: all 14. One name makes a binary
            problem.
        **kwargs: As for ``mmpretrain.BaseDataset``: ``data_prefix``, the folder of the images
            within ``data_root``, ``pipeline``, ...

    Raises:
        UserError: If a file cannot be read, a column, image or label is missing or unknown, or a
            class has no positive in the split.
        ValueError: If a setting makes no sense.
    """

    METAINFO = {'classes': CLASSES}  # noqa: RUF012  as the host has it
    #: Share of the training and validation patients that validate: 7:1 of them.
    val_fraction = 0.125

    def __init__(
        self,
        data_root: str,
        split: str = 'train',
        split_by: str = 'lists',
        classes: Sequence[str] | None = None,
        **kwargs,
    ) -> None:
        one_of('split', split, SPLITS)
        one_of('split_by', split_by, SPLIT_BY)
        if classes is not None:
            unknown = [name for name in classes if name not in CLASSES]
            if unknown or len(set(classes)) < len(classes) or not classes:
                raise ValueError(
                    f'classes={list(classes)} must name some of {", ".join(CLASSES)}, each once'
                )
        self.split = split
        self.split_by = split_by
        kwargs.setdefault('ann_file', 'Data_Entry_2017.csv')
        super().__init__(data_root=data_root, classes=classes, **kwargs)

    def load_data_list(self) -> list[dict]:
        """Return ``img_path``, ``gt_label`` and ``gt_score`` of the split."""
        entries = read_entries(self.ann_file)
        names = self._choose(entries)
        columns = [CLASSES.index(name) for name in self.CLASSES]
        targets = np.zeros((len(names), len(CLASSES)), dtype=np.int64)
        for row, name in zip(targets, names):
            row[list(entries[name].findings)] = 1
        targets = targets[:, columns]
        check_every_class(targets, self.CLASSES, self.split, self.ann_file)
        paths = find_images(self.img_prefix or self.data_root, names)
        return multi_label_items(paths, targets)

    def _choose(self, entries: dict[str, Entry]) -> list[str]:
        if self.split_by == 'patients':
            every = dict.fromkeys(e.patient for e in entries.values())
            rest, test = self._part(every, 0.1)
            others = [n for n, e in entries.items() if e.patient in rest]
            tests = [n for n, e in entries.items() if e.patient in test]
        else:
            others, tests = (
                read_image_list(join_path(self.data_root, name), entries)
                for name in ('train_val_list.txt', 'test_list.txt')
            )
        if self.split in ('test', 'trainval'):
            return tests if self.split == 'test' else others
        patients = dict.fromkeys(entries[name].patient for name in others)
        # 1/9 of nine tenths is the tenth that 8:1:1 requires.
        share = self.val_fraction if self.split_by == 'lists' else 1 / 9
        train, val = self._part(patients, share)
        wanted = train if self.split == 'train' else val
        return [name for name in others if entries[name].patient in wanted]

    def _part(self, patients: dict, share: float) -> tuple[set, set]:
        groups = dict.fromkeys(patients, '')
        return tuple(map(set, split_classes(groups, share, seed=0)))

    def extra_repr(self) -> list[str]:
        return [*super().extra_repr(), f'Split: \t{self.split}, by {self.split_by}']
