"""What a check of a COCO file finds: its contents, and the kinds of problems with their fixes."""

from dataclasses import dataclass, field

import numpy as np

from mmrank.datasets.checks.data_report import DataReport
from mmrank.errors import UserError

# COCO's limits between small, medium and large objects, in square pixels.
SMALL_AREA, LARGE_AREA = 32**2, 96**2

_IMAGES = 'copy or download the image again, or remove it from the file.'
_MISSING = (
    'copy the missing images, or correct data_prefix/data_root so that '
    'data_prefix["img"] + file_name is the path.'
)

FIXES = {
    'missing key': 'add the key, or export the file again as COCO.',
    'duplicate image id': 'give every image its own id.',
    'annotation id 0': 'number the annotations 1, 2, 3, ...',
    'duplicate category id': 'give every category its own id.',
    'duplicate category name': 'merge the categories or rename one.',
    'malformed value': (
        'write the value in the form COCO requires: id an integer, bbox four numbers [x, y, width, '
        'height], width and height of an image positive integers.'
    ),
    'boxes reach beyond the image': (
        'if bbox holds corners [x1, y1, x2, y2], turn it into [x, y, width, '
        'height]; otherwise check width and height of the images.'
    ),
    'boxes in fractions': (
        'COCO has pixels: multiply x and width by the width of the image, y and height by its '
        'height.'
    ),
    'unusable file name': (
        "make file_name the path of the image within its folder, without a leading '/' and '..'; "
        'what the images have in common goes to data_prefix["img"].'
    ),
    'class without category': (
        "make metainfo['classes'] of the data set the names in 'categories' "
        '(write a one-class list with a comma: classes=("cell",)).'
    ),
    'order of classes differs': (
        "list metainfo['classes'] in the file's order; mmdet numbers labels "
        'by the file, so names in tables and drawings would be swapped.'
    ),
    'ids of several kinds': (
        'number them 1, 2, 3, ... in images, annotations and categories; evaluators sort the ids, '
        'and keep them in 64 bits.'
    ),
    'one picture under two ids': (
        'keep one entry with all its objects; otherwise each is trained on as if the objects of '
        'the other were background.'
    ),
    'same box twice': 'remove the copy: the second counts as an object that is missed.',
    'rotated box': (
        'export polygons or masks, and boxes around them: bbox is the box before it is turned.'
    ),
    'class of crowds alone': (
        'set iscrowd=0 of single objects: a crowd is neither trained on nor counted.'
    ),
    'object without a mask': (
        'write its segmentation, remove the annotation, or with_mask=False of LoadAnnotations: '
        'mmdet ends in a KeyError at this image.'
    ),
    'no annotation at all': 'use the file that holds the boxes.',
    'federated field': (
        'take an official LVIS file of the split (v0.5 or v1), whose images have lists '
        "'neg_category_ids' and 'not_exhaustive_category_ids'; tools that merge or filter "
        'annotations drop them. A data set in which every class is annotated in every image is a '
        "'mmrank.CheckedCocoDataset', and the head needs no federated=True."
    ),
    'verified absent and annotated': (
        'remove the class from neg_category_ids of the image, or the annotation; the annotation '
        'decides.'
    ),
    'missing image folder': _MISSING,
    'missing image file': _MISSING,
    'misspelt image file': (
        "write '/' between folders, and each name as it is on the disk: capital letters, blanks "
        'and the Unicode form count.'
    ),
    'empty image file': _IMAGES,
    'unreadable image file': _IMAGES,
    'dark images': (
        'write them with 8 bits, divided by 16 where a camera has 12 bits, or load them by '
        "color_type='unchanged'."
    ),
    'image size differs': (
        'write the real width and height, or put the image that was annotated in '
        'place: boxes are in the pixels of the annotated one.'
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

    ``counts`` has the annotations without an error by class name, in the file's category order;
    ``num_empty_images`` counts the images that no annotation refers to, ``bad_annotations`` are the
    positions in ``annotations`` with an error. ``names`` are the classes by category id, ``images``
    (file name, width, height) by image id, and ``objects``, (images, 2), the number of annotations
    of each and a sum over their classes and boxes: two files of the same images have the same.
    """

    ann_file: str
    num_images: int = 0
    num_annotations: int = 0
    num_empty_images: int = 0
    counts: dict[str, ClassCount] = field(default_factory=dict)
    names: dict = field(default_factory=dict)
    images: dict = field(default_factory=dict)
    # An array has no single answer to ==.
    objects: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)), compare=False)
    bad_annotations: set[int] = field(default_factory=set)

    @property
    def heading(self) -> str:
        return f'annotation file {self.ann_file}:'

    def raise_if_bad(self) -> None:
        """Raise a ``UserError`` with all errors in one message, if there is any."""
        if not self.ok:
            raise UserError(
                self.describe(self.errors)
                + '\nAll findings as a table, and a cleaned copy: python '
                f'tools/dataset_converters/check_coco.py {self.ann_file} --fix CLEANED.json'
            )
