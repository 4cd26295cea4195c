"""Images of several classes: a table of your own, and ChestX-ray14. Imports mmpretrain."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mmengine.fileio import join_path
from mmpretrain.datasets import MultiLabelDataset

from mmrank.annotations.findings import shown
from mmrank.annotations.text_tables import read_rows, read_table
from mmrank.datasets.labels import check_every_class
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.retrieval.retrieval_sets import split_classes
from mmrank.errors import UserError
from mmrank.files import path_fault
from mmrank.settings import one_of

#: Of ChestX-ray14.
CLASSES = (
    'Atelectasis', 'Cardiomegaly', 'Effusion', 'Infiltration', 'Mass', 'Nodule', 'Pneumonia',
    'Pneumothorax', 'Consolidation', 'Edema', 'Emphysema', 'Fibrosis', 'Pleural_Thickening',
    'Hernia',
)  # fmt: skip
_NO_FINDING = 'No Finding'
_COLUMNS = ('Image Index', 'Finding Labels', 'Patient ID')
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
    """

    METAINFO = {'classes': CLASSES}  # noqa: RUF012  as the host has it
    val_fraction = 0.125  # Share of the training and validation patients that validate: 7:1 of them

    def __init__(
        self,
        data_root: str,
        split: str = 'train',
        split_by: str = 'lists',
        classes: Sequence[str] | None = None,
        **kwargs,
    ) -> None:
        one_of('split', split, ('train', 'val', 'trainval', 'test'))
        one_of('split_by', split_by, ('lists', 'patients'))
        if classes is not None and (not classes or _unusable(classes, CLASSES)):
            what = f'classes={list(classes)} must name some findings, each once'
            raise UserError(what, f'names of {", ".join(CLASSES)}')
        self.split = split
        self.split_by = split_by
        kwargs.setdefault('ann_file', 'Data_Entry_2017.csv')
        super().__init__(data_root=data_root, classes=classes, **kwargs)

    def load_data_list(self) -> list[dict]:
        entries = _read_entries(self.ann_file)
        names = self._choose(entries)
        targets = np.array([[x in entries[name].findings for x in self.CLASSES] for name in names])
        targets = targets.reshape(-1, len(self.CLASSES)).astype(np.int64)
        check_every_class(targets, self.CLASSES, self.split, self.ann_file)
        paths = _find_images(Path(self.img_prefix or self.data_root), names)
        return multi_label_items(paths, targets)

    def _choose(self, entries: dict[str, '_Entry']) -> list[str]:
        if self.split_by == 'patients':
            rest, test = _split_patients(entries.values(), 0.1)
            others = [name for name, entry in entries.items() if entry.patient in rest]
            tests = [name for name, entry in entries.items() if entry.patient in test]
            # 1/9 of nine tenths is the tenth that 8:1:1 requires.
            share = 1 / 9
        else:
            others, tests = (
                _read_image_list(join_path(self.data_root, name), entries)
                for name in ('train_val_list.txt', 'test_list.txt')
            )
            share = self.val_fraction
        if self.split in ('test', 'trainval'):
            return tests if self.split == 'test' else others
        train, val = _split_patients([entries[name] for name in others], share)
        wanted = train if self.split == 'train' else val
        return [name for name in others if entries[name].patient in wanted]


class _Entry(NamedTuple):
    """One X-ray."""

    findings: list[str]
    patient: str


def _read_entries(path: str | os.PathLike) -> dict[str, _Entry]:
    """Read the X-rays of ``Data_Entry_2017.csv`` by file name, in the order of the file.

    It has at least the columns ``Image Index``, ``Finding Labels`` (names parted by ``|``, or ``No
    Finding``) and ``Patient ID``.
    """
    entries: dict[str, _Entry] = {}
    for place, row in read_table(path, _COLUMNS)[1]:
        image, labels, patient = (row[name] for name in _COLUMNS)
        if image in entries:
            raise UserError(f'{place} lists {image:.200} a second time. Fix: remove one line')
        findings = [] if labels == _NO_FINDING else [x.strip() for x in labels.split('|')]
        if _unusable(findings, CLASSES):
            raise UserError(
                f"{place}: 'Finding Labels' is {labels!r:.200}; known are {', '.join(CLASSES)}, "
                f'each at most once, or {_NO_FINDING!r} alone. Fix: correct this line'
            )
        entries[image] = _Entry(findings, patient)
    if not entries:
        raise UserError(f'{path} lists no image. Fix: fetch Data_Entry_2017.csv again')
    return entries


def _read_image_list(path: str | os.PathLike, entries: dict[str, _Entry]) -> list[str]:
    """Read the file names of ``train_val_list.txt`` or ``test_list.txt``."""
    names = [name for _, row in read_rows(path) for name in row]
    unusable = _unusable(names, entries)
    if unusable or not names:
        raise UserError(
            f'{path} names {len(names)} images, of which {len(unusable)} are named twice or are '
            f'not in the table of labels, like {", ".join(unusable[:5])!s:.300}. Fix: fetch list '
            "and table again, of one version, or split_by='patients'"
        )
    return names


def _unusable(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """Names that are unknown, or there a second time."""
    left = set(known)
    unusable = []
    for name in names:
        if name in left:
            left.remove(name)
        else:
            unusable.append(name)
    return unusable


def _split_patients(entries: Iterable[_Entry], share: float) -> tuple[set[str], set[str]]:
    patients = dict.fromkeys((entry.patient for entry in entries), '')
    rest, aside = split_classes(patients, share, seed=0)
    return set(rest), set(aside)


def _find_images(folder: Path, names: list[str]) -> list[str]:
    """Find image files in a folder, its ``images/``, or ``images_001/images/`` and so on."""
    places = [folder, folder / 'images', *sorted(folder.glob('images_*/images'))]
    found = {
        name: str(place / name)
        for place in reversed(places)
        if place.is_dir()
        for name in os.listdir(place)
    }
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError(
            f'{len(missing)} of {len(names)} images are missing, like '
            f'{", ".join(missing[:5])!s:.300}; looked into {folder}, its images/ and its '
            'images_*/images/. Fix: check data_root and data_prefix, and unpack all of '
            'images_001.tar.gz to images_012.tar.gz'
        )
    return [found[name] for name in names]
