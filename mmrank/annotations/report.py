"""What a check of a COCO file finds: its contents, and the kinds of problems with their fixes."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from mmrank.annotations.findings import DataReport
from mmrank.errors import UserError

# COCO's limits between small, medium and large objects, in square pixels.
SMALL_AREA = 32**2
LARGE_AREA = 96**2

#: Of all kinds but those of annotations.
FIXES = {
    'missing key': 'add the key, or export the file again as COCO.',
    'malformed value': (
        'write the value in the form of COCO: ids integers, bbox four numbers [x, y, width, '
        'height], width and height of an image positive.'
    ),
    'duplicate image id': 'give every image its own id.',
    'duplicate category id': 'give every category its own id.',
    'duplicate category name': 'merge the categories or rename one.',
    'class names that look alike': 'rename one, or give its objects the category_id of the other.',
    'ids of several kinds': (
        'number them 1, 2, 3, ... in images, annotations and categories; evaluators sort the ids, '
        'and keep them in 64 bits.'
    ),
    'class without category': (
        "add the class to 'categories' of the file, also where it has no object; or, if the name "
        "is wrong, make metainfo['classes'] of the data set the names in 'categories' "
        '(a one-class list with a comma: classes=("cell",)).'
    ),
    'order of classes differs': (
        "list metainfo['classes'] in the file's order; mmdet numbers labels by the file, so names "
        'in tables and drawings would be swapped.'
    ),
    'unusable file name': (
        "make file_name the path of the image within its folder, without '..'; what the images "
        'have in common goes to data_prefix["img"].'
    ),
    'absolute file name': 'make file_name relative to data_prefix["img"] before the data moves.',
    'one picture under two ids': (
        'keep one entry with all its objects; otherwise each is trained on as if the objects of '
        'the other were background.'
    ),
    'class of crowds alone': (
        'set iscrowd=0 of single objects: a crowd is neither trained on nor counted.'
    ),
    'no annotation at all': 'use the file that holds the boxes, if training or testing needs them.',
    'federated field': (
        'take an official LVIS file of the split (v0.5 or v1), whose images have lists '
        "'neg_category_ids' and 'not_exhaustive_category_ids'; where every class is annotated in "
        "every image, use 'mmrank.CheckedCocoDataset' and a head without federated=True."
    ),
    'verified absent and annotated': (
        'remove the class from neg_category_ids of the image, or the annotation, which decides.'
    ),
    'images below min_size': 'a smaller min_size in filter_cfg of the data set, such as 0.',
    'missing image folder': 'correct data_prefix or data_root, or --images.',
    'missing image file': (
        'copy the missing images, or correct data_prefix/data_root so that data_prefix["img"] + '
        'file_name is the path, with the same capital letters, slashes and Unicode form.'
    ),
    'unreadable image file': 'copy or download the image again, or remove it from the file.',
    'dark images': (
        'write them with 8 bits, divided by 16 where a camera has 12 bits, or load them by '
        "color_type='unchanged'."
    ),
    'image size differs': (
        'write the real width and height, or put the image that was annotated in place: boxes are '
        'in its pixels.'
    ),
}


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
