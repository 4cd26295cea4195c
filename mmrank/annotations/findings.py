"""Findings of a data check, the kinds of COCO files with their fixes, and reports."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from reprlib import Repr
from typing import Any

from mmrank.errors import UserError

#: Findings of a kind that are spelt out.
MAX_EXAMPLES = 5
# COCO's limits between small, medium and large objects, in square pixels.
SMALL_AREA = 32**2
LARGE_AREA = 96**2

#: Fixes of the findings of a file, but for its annotations: these have ANNOTATION_FIXES.
FIXES = {
    'missing key': 'add the key, or export the file again as COCO.',
    'malformed value': 'ids integers, bbox four numbers [x, y, width, height], sizes positive.',
    'duplicate image id': 'give every image its own id.',
    'duplicate category id': 'give every category its own id.',
    'duplicate category name': 'merge the categories or rename one.',
    'class names that look alike': 'rename one, or give its objects the category_id of the other.',
    'ids of several kinds': 'number images, annotations and categories 1, 2, 3, ...',
    'class without category': (
        "add the class to 'categories' of the file, also without objects, or correct the name in "
        "metainfo['classes'] (a one-class list with a comma: classes=('cell',))."
    ),
    'order of classes differs': (
        "list metainfo['classes'] in the order of the file, by which mmdet numbers labels."
    ),
    'unusable file name': (
        "make file_name the path of the image within data_prefix['img'], without '..'."
    ),
    'absolute file name': 'make file_name relative to data_prefix["img"] before the data moves.',
    'one picture under two ids': 'keep one entry with all its objects.',
    'class of crowds alone': 'set iscrowd=0 of single objects: a crowd is not trained on.',
    'no annotation at all': 'use the file that holds the boxes, if training or testing needs them.',
    'federated field': (
        'take an official LVIS file of the split (v0.5 or v1), whose images have lists '
        "'neg_category_ids' and 'not_exhaustive_category_ids'; where every class is annotated in "
        "every image, use 'mmrank.CheckedCocoDataset' and a head without federated=True."
    ),
    'verified absent and annotated': 'remove it from neg_category_ids, or the annotation.',
    'images below min_size': 'a smaller min_size in filter_cfg of the data set, such as 0.',
    'missing image folder': 'correct data_prefix or data_root, or --images.',
    'missing image file': (
        'copy the missing images, or correct data_prefix/data_root so that data_prefix["img"] + '
        'file_name is the path, with the same capital letters, slashes and Unicode form.'
    ),
    'unreadable image file': 'copy or download the image again, or remove it from the file.',
    'dark images': "write them with 8 bits, or load them by color_type='unchanged'.",
    'image size differs': 'write the real width and height, or take the image of the annotations.',
}


@dataclass
class Problem:
    """All findings of one kind; ``examples`` are the first few, each with field and value."""

    kind: str
    fix: str
    is_error: bool = True
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The examples, and how many more there are."""
        more = self.count - len(self.examples)
        return [*self.examples, *([f'... and {more} more'] if more > 0 else [])]

    def __str__(self) -> str:
        lines = [f'{self.kind} ({self.count} found):', *self.lines(), f'Fix: {self.fix}']
        return '\n    '.join(lines)


class Findings:
    """Collects problems by kind and keeps the first examples of each."""

    def __init__(self, fixes: Mapping[str, str]) -> None:
        self.fixes = fixes
        self.by_kind: dict[str, Problem] = {}

    def add(self, kind: str, example: str, is_error: bool = True) -> None:
        """Count one finding; the first of a kind decides whether it is an error."""
        if kind not in self.by_kind:
            self.by_kind[kind] = Problem(kind, self.fixes[kind], is_error)
        problem = self.by_kind[kind]
        problem.count += 1
        if len(problem.examples) < MAX_EXAMPLES:
            problem.examples.append(example)

    def lacks_keys(self, entry: object, where: str, keys: tuple[str, ...]) -> bool:
        """Report the keys that ``entry`` lacks; whether there are any."""
        if not isinstance(entry, dict):
            self.add('malformed value', f'{where} is a {type(entry).__name__}, not an object')
            return True
        absent = [key for key in keys if key not in entry]
        if absent:
            self.add('missing key', f'{where} has no {", ".join(map(repr, absent))}')
        return bool(absent)


@dataclass(kw_only=True)
class DataReport:
    """Problems of one data set; ``heading`` says what was checked."""

    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """Problems that must be mended before training."""
        return [x for x in self.problems if x.is_error]

    @property
    def warnings(self) -> list[Problem]:
        """Problems that a training survives, perhaps by dropping data."""
        return [x for x in self.problems if not x.is_error]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def describe(self, problems: list[Problem]) -> str:
        """One text that names what was checked and all ``problems``."""
        return '\n'.join([self.heading, *(f'  {i}. {x}' for i, x in enumerate(problems, 1))])


def is_id(value: object) -> bool:
    """Whether ``value`` can be an id: an integer or a string."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is an integer or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
#: A value as messages show it, however long or deeply nested it is.
shown = _SHORT.repr


def config_datasets(dataset: object, where: str) -> Iterator[tuple[str, Mapping]]:
    """Place and config of a data set, inside of its wrappers first."""
    if not isinstance(dataset, Mapping):
        return
    inner = dataset.get('datasets')
    for index, item in enumerate(inner if isinstance(inner, list | tuple) else ()):
        yield from config_datasets(item, f'{where}.datasets.{index}')
    yield from config_datasets(dataset.get('dataset'), f'{where}.dataset')
    yield where, dataset


@dataclass
class ClassCount:
    """Objects of one class by COCO size; crowds are counted apart."""

    small: int = 0
    medium: int = 0
    large: int = 0
    crowd: int = 0

    @property
    def total(self) -> int:
        """Objects of all sizes without crowds."""
        return self.small + self.medium + self.large


@dataclass
class CocoReport(DataReport):
    """Contents and problems of one annotation file.

    ``names`` are the classes by category id, ``images`` (file name, width, height) by image id,
    ``columns`` the annotations without an error, and ``counts`` their numbers by class name, all in
    the order of the file. ``bad_images`` and ``bad_annotations`` are the positions of those with an
    error, ``num_empty_images`` counts the images that no annotation refers to.
    """

    ann_file: str
    image_dir: str | None = None
    num_images: int = 0
    num_annotations: int = 0
    num_empty_images: int = 0
    counts: dict[str, ClassCount] = field(default_factory=dict)
    names: dict = field(default_factory=dict)
    images: dict = field(default_factory=dict)
    bad_images: set[int] = field(default_factory=set)
    bad_annotations: set[int] = field(default_factory=set)
    columns: Any = field(default=None, compare=False)  # arrays have no single answer to ==

    @property
    def heading(self) -> str:
        return f'annotation file {self.ann_file}:'

    def raise_if_bad(self) -> None:
        """Raise a ``UserError`` with all errors in one message, if there is any."""
        if self.ok:
            return
        words = ['mmrank', 'check', 'coco', self.ann_file, '--fix', 'CLEANED.json']
        words += ['--images', self.image_dir] if self.image_dir else []
        raise UserError(
            f'{self.describe(self.errors)}\n'
            f'All findings as a table, and a cleaned copy: {shlex.join(words)}'
        )
