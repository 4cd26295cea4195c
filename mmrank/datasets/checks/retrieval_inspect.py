"""Looks for what is wrong with a retrieval data set."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from mmrank.datasets.checks.data_report import DataReport, Findings
from mmrank.datasets.image_header import image_fault
from mmrank.errors import UserError

if TYPE_CHECKING:
    from mmrank.datasets.retrieval.retrieval_dataset import RetrievalDataset

_FIXES = {
    'line that cannot be used': (
        'correct or remove the line; list paths within the folder of the images, and set '
        'data_prefix to it.'
    ),
    'unusable': 'follow the message of the finding.',
    'class without image': (
        'remove the folder, or put its images there; it is no class of the data set.'
    ),
    'class with a single image': (
        'add images or leave the class out: its image has no positive, so PKSampler skips it and a '
        'query of it is not counted.'
    ),
    'image of several classes': (
        'decide for one class; an image is a positive or a negative, not both.'
    ),
    'image listed twice': (
        'remove the double lines; the copy would be found as a positive of the image itself.'
    ),
    'image file missing': (
        'check data_root and data_prefix, that the images were '
        'unpacked whole, and that links lead to a file.'
    ),
    'image that cannot be decoded': (
        'fetch or convert the file again, or remove it from the list.'
    ),
    'image that is trained on as well': (
        'give the splits different classes; what the figures '
        'tell otherwise is how well the model remembers.'
    ),
    'class that is trained on as well': (
        'fine where the folders number their classes each '
        'from the start; else give the splits different classes.'
    ),
}


@dataclass
class RetrievalReport(DataReport):
    """Contents and problems of one split: images of every class, by label, and their paths."""

    where: str  # its place in the config, or its folder
    source: str = ''  # the list or folder that was read
    counts: dict[str, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        return f'{self.where} ({self.source}):' if self.source else self.where


def inspect_split(
    dataset: 'RetrievalDataset',
    where: str,
    read_images: bool = False,
    max_examples: int = 5,
    progress: Callable[[int, int], None] | None = None,
) -> RetrievalReport:
    """Check the list and the images of one split, a data set built with ``lazy_init=True``.

    ``read_images`` decodes the images as well and calls ``progress(done, total)`` after each;
    ``max_examples`` findings of a kind are spelt out.
    """
    found = Findings(max_examples, _FIXES)
    report = RetrievalReport(where)
    _inspect(dataset, report, found)
    if read_images:
        _read_images(report.paths, found, progress)
    report.problems = list(found.by_kind.values())
    return report


def _inspect(dataset: 'RetrievalDataset', report: RetrievalReport, found: Findings) -> None:
    try:
        listed = dataset.read_list(test=dataset.split == 'test')
        report.source = listed.source
        for fault in listed.faults:
            found.add('line that cannot be used', fault)
        if found.by_kind:
            return
        items = dataset.load_data_list()
    except (UserError, ValueError) as error:
        found.add('unusable', str(error))
        return
    names = dataset.metainfo['classes']
    counts = Counter(item['gt_label'] for item in items)
    report.counts = {n: counts[i] for i, n in enumerate(names)}
    report.paths = [item['img_path'] for item in items]
    for folder in listed.empty_folders:
        found.add('class without image', f'folder {folder} holds no image', is_error=False)
    for name, count in report.counts.items():
        if count == 1:
            found.add('class with a single image', f'class {name!r}', is_error=False)
    _find_duplicates(items, names, found)
    _find_missing(report.paths, found)


def _find_duplicates(items: list[dict], names: tuple[str, ...], found: Findings) -> None:
    labels = defaultdict(list)
    for item in items:
        labels[os.path.normpath(item['img_path'])].append(item['gt_label'])
    for path, own in labels.items():
        if len(set(own)) > 1:
            classes = sorted({names[label] for label in own})
            found.add('image of several classes', f'{path} is of {classes}')
        elif len(own) > 1:
            found.add('image listed twice', f'{path}, {len(own)} times')


def _find_missing(paths: list[str], found: Findings) -> None:
    # One listing a folder instead of one look-up an image: ten times faster on network disks.
    @cache
    def listing(folder: str) -> frozenset[str]:
        try:
            with os.scandir(folder or '.') as entries:
                return frozenset(e.name for e in entries if _is_file(e))
        except (OSError, ValueError):
            return frozenset()

    for path in paths:
        folder, name = os.path.split(path)
        if name not in listing(folder):
            found.add('image file missing', path)


def _is_file(entry: os.DirEntry) -> bool:
    """Whether it is a file; costs a look-up only where it is a link."""
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _read_images(
    paths: list[str], found: Findings, progress: Callable[[int, int], None] | None
) -> None:
    for done, path in enumerate(paths, 1):
        fault = image_fault(path) if os.path.isfile(path) else None
        if fault:
            found.add('image that cannot be decoded', f'{path}: {fault}')
        if progress is not None:
            progress(done, len(paths))


def compare_splits(train: RetrievalReport, other: RetrievalReport) -> None:
    """Add to ``other`` what it has in common with the training split.

    Shared images are an error in the test split. Shared classes are a warning: retrieval is
    measured on classes not trained on.
    """
    found = Findings(5, _FIXES)
    trained = {os.path.normpath(path) for path in train.paths}
    is_test = other.where.startswith('test')
    for path in other.paths:
        if os.path.normpath(path) in trained:
            text = f'{path} is also in {train.where}'
            found.add('image that is trained on as well', text, is_error=is_test)
    if not found.by_kind:
        for name in other.counts:
            if name in train.counts:
                text = f'class {name!r} is also in {train.where}'
                found.add('class that is trained on as well', text, is_error=False)
    other.problems += found.by_kind.values()
