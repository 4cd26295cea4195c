"""Kinds of problems in a COCO file, each with its fix."""

from reprlib import Repr

from mmrank.datasets.checks.data_report import Problem

FIXES = {
    'missing key': 'add the key, or export the file again as COCO.',
    'duplicate image id': 'give every image its own id.',
    'duplicate annotation id': (
        'number the annotations 1, 2, 3, ...; merged files are the usual cause.'
    ),
    'duplicate category id': 'give every category its own id.',
    'duplicate category name': 'merge the categories or rename one.',
    'unknown image id': ("add the image to 'images' or remove the annotation."),
    'unknown category id': (
        "add the category to 'categories' or remove the annotation; it would "
        'silently be left out of training.'
    ),
    'malformed value': (
        'write the value in the form COCO requires: id an integer, bbox four numbers [x, y, width, '
        'height], width and height of an image positive integers.'
    ),
    'box with NaN or infinity': (
        'remove the annotation or write its real box; NaN makes the loss NaN.'
    ),
    'box of impossible size': (
        'remove the annotation or write its real box, in pixels; coordinates end at 10^9.'
    ),
    'box of negative size': (
        'bbox is [x, y, width, height]; corners [x1, y1, x2, y2] must be turned into it.'
    ),
    'box of zero size': 'remove the annotation or write its real box.',
    'box outside the image': (
        "correct the box or the image's width and height: the box covers no pixel of the image."
    ),
    'boxes reach beyond the image': (
        'if bbox holds corners [x1, y1, x2, y2], turn it into [x, y, width, '
        'height]; otherwise check width and height of the images.'
    ),
    'area not positive': (
        'set area to the pixels of the object, or width * height of the box; '
        'mmdet drops objects without area.'
    ),
    'unusable file name': (
        'make file_name the path of the image within its folder, without a '
        "leading '/' and '..'; what the images have in common goes to "
        'data_prefix["img"].'
    ),
    'class without category': (
        "make metainfo['classes'] of the data set the names in 'categories' "
        '(write a one-class list with a comma: classes=("cell",)).'
    ),
    'order of classes differs': (
        "list metainfo['classes'] in the file's order; mmdet numbers labels "
        'by the file, so names in tables and drawings would be swapped.'
    ),
    'no annotation at all': 'use the file that holds the boxes.',
}


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class Findings:
    """Collects problems by kind and keeps the first few examples.

    Args:
        max_examples: Findings of one kind that are spelt out.

    Attributes:
        by_kind: The problems so far.
    """

    def __init__(self, max_examples: int) -> None:
        self.max_examples = max_examples
        self.by_kind: dict[str, Problem] = {}

    def add(self, kind: str, example: str, is_error: bool = True, fix: str | None = None) -> None:
        """Count one finding.

        Args:
            kind: A key of :data:`FIXES`, or any phrase if ``fix`` is given.
            example: The finding, naming field and value.
            is_error: Whether it must stop training; the first finding of a kind decides.
            fix: What to do about it; None looks it up.
        """
        problem = self.by_kind.get(kind)
        if problem is None:
            problem = Problem(kind, fix or FIXES[kind], is_error)
            self.by_kind[kind] = problem
        problem.count += 1
        if len(problem.examples) < self.max_examples:
            problem.examples.append(example)


def lacks_keys(entry: object, where: str, keys: tuple, found: Findings) -> bool:
    """Report keys that ``entry`` lacks; whether there are any."""
    if not isinstance(entry, dict):
        kind = type(entry).__name__
        found.add('malformed value', f'{where} is a {kind}, not an object')
        return True
    absent = [key for key in keys if key not in entry]
    if absent:
        names = ', '.join(map(repr, absent))
        found.add('missing key', f'{where} has no {names}')
    return bool(absent)


def is_id(value: object) -> bool:
    """Whether ``value`` can be an id: an integer or a string."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is an integer or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as messages show it, however long or deeply nested it is."""
    return _SHORT.repr(value)
