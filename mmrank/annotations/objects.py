"""The annotations of a COCO file as columns, and the table of what can be wrong with them.

``instances_train2017.json`` (860,001 annotations) takes about a second.
"""

from collections.abc import Callable, Collection
from functools import partial
from itertools import chain, compress, repeat
from math import inf
from typing import NamedTuple

import numpy as np

from mmrank.annotations.findings import (
    LARGE_AREA,
    MAX_EXAMPLES,
    SMALL_AREA,
    ClassCount,
    CocoReport,
    Findings,
    is_number,
    shown,
)
from mmrank.annotations.masks import LARGEST_PIXEL, NUMBERS, OVERHANG_PIXELS, mask_form

#: Share of the annotations from which boxes beyond the image, and odd areas, are reported.
_OVERHANG_SHARE = 0.2
_AREA_SHARE = 0.1
_LARGEST_ID = (1 << 63) - 1
_IGNORED = (1, '1', 'true', 'True')
#: Annotations whose values are read at a time, while they are in the cache of the CPU.
_CHUNK = 4096
#: The first annotations, whose polygons are looked at even where they are not trained on.
_SAMPLED = 4096
#: By which image, class and box become one number.
_FACTORS = np.int64(6364136223846793005) ** np.arange(1, 7)


def is_number_id(value: object) -> bool:
    """Whether a value can be the id of an annotation: evaluators keep it in 64 bits."""
    return type(value) is int and -_LARGEST_ID <= value <= _LARGEST_ID


def _are_references(values: list) -> list[bool]:
    return [type(x) is int or type(x) is str for x in values]


#: Which values of a key have the form that COCO requires.
_FORMS: dict[str, Callable[[list], list[bool]]] = {
    'id': lambda values: [type(x) is int and -_LARGEST_ID <= x <= _LARGEST_ID for x in values],
    'image_id': _are_references,
    'category_id': _are_references,
    'bbox': lambda values: [
        type(x) is list and len(x) == 4 and NUMBERS.issuperset(map(type, x)) for x in values
    ],
    'area': lambda values: [type(x) in NUMBERS for x in values],
    'iscrowd': lambda values: [type(x) in (int, bool, float) and x in (0, 1) for x in values],
}


class Columns(NamedTuple):
    """Values of n annotations."""

    place: np.ndarray  # (n,) position in the file
    id: np.ndarray  # (n,)
    image: np.ndarray  # (n,) position of the image, -1 for an unknown one
    label: np.ndarray  # (n,) position of the category, -1 for an unknown one
    size: np.ndarray  # (n, 2) width and height of the image, infinite for an unknown one
    box: np.ndarray  # (n, 4) x, y, width and height
    area: np.ndarray  # (n,)
    crowd: np.ndarray  # (n,) 0 or 1
    is_ignored: np.ndarray  # (n,) whether ``ignore`` is set
    is_turned: np.ndarray  # (n,) whether the box has a rotation in addition, as CVAT exports it
    mask: np.ndarray  # (n,) 0 without a segmentation, 1 with one, below 0 see mask_form
    needs_mask: np.ndarray  # (n,) whether its mask is trained on


def _columns(
    annotations: list, sizes: dict, is_wanted: dict, with_masks: bool
) -> tuple[Columns, np.ndarray]:
    """The annotations whose values have the form of COCO, and (n,) bool, which ones have.

    ``is_wanted`` says of each category id whether it is trained on.
    """
    image_index = {key: i for i, key in enumerate(sizes)}
    label_index = {key: i for i, key in enumerate(is_wanted)}
    all_sizes = [*sizes.values(), (inf, inf)]
    size_array = np.array(all_sizes, dtype=float)
    needs_mask = np.array([*is_wanted.values(), False]) & with_masks
    parts = []
    for start in range(0, len(annotations) or 1, _CHUNK):
        entries = [x if type(x) is dict else {} for x in annotations[start : start + _CHUNK]]
        values = {key: [ann.get(key) for ann in entries] for key in _FORMS}
        has_form = np.ones(len(entries), dtype=bool)
        for key, fits in _FORMS.items():
            has_key = fits(values[key])
            if not all(has_key):
                has_form &= np.array(has_key, dtype=bool)
        if not has_form.all():
            entries = list(compress(entries, has_form))
            values = {key: list(compress(column, has_form)) for key, column in values.items()}
        image = np.fromiter(map(image_index.get, values['image_id'], repeat(-1)), np.int64)
        label = np.fromiter(map(label_index.get, values['category_id'], repeat(-1)), np.int64)
        places = image.tolist()
        masks = [0] * len(entries)
        for i, ann in enumerate(entries):
            if mask := ann.get('segmentation'):
                # Where they are not trained on, some polygons are enough: all take a third more.
                is_read = with_masks or start + i < _SAMPLED or type(mask) is not list
                masks[i] = 1
                if is_read:
                    masks[i] = mask_form(mask, all_sizes[places[i]], values['bbox'][i])
        columns = Columns(
            place=start + np.flatnonzero(has_form),
            id=np.array(values['id'], dtype=np.int64),
            image=image,
            label=label,
            size=size_array[image],
            box=_floats(values['bbox']).reshape(-1, 4),
            area=_floats([values['area']]),
            crowd=np.array(values['iscrowd'], dtype=np.int64),
            is_ignored=np.array([x.get('ignore') in _IGNORED for x in entries], dtype=bool),
            is_turned=np.array(['attributes' in x and _is_turned(x) for x in entries], dtype=bool),
            mask=np.array(masks, dtype=np.int64),
            needs_mask=needs_mask[label],
        )
        parts.append((*columns, has_form))
    *columns, has_form = map(np.concatenate, zip(*parts))
    return Columns(*columns), has_form


def _floats(rows: list[list]) -> np.ndarray:
    """(N,) float64 of all numbers; integers that it cannot hold become huge ones."""
    try:
        return np.fromiter(chain.from_iterable(rows), float)
    except OverflowError:
        values = chain.from_iterable(rows)
        return np.array([x if type(x) is float else max(-1e300, min(x, 1e300)) for x in values])


def _is_turned(ann: dict) -> bool:
    attributes = ann['attributes']
    turn = attributes.get('rotation') if isinstance(attributes, dict) else None
    return is_number(turn) and turn % 360 != 0


class _Rule(NamedTuple):
    """A kind of problem.

    ``where`` says in which annotations, (n,) bool, and ``keys`` what a finding shows of one. It is
    an error if there are more than the ``tolerated`` share.
    """

    kind: str
    where: Callable[[Columns], np.ndarray]
    fix: str
    tolerated: float = 0.0
    keys: tuple[str, ...] = ('category_id', 'bbox', 'area')


#: A rule that no number of annotations makes an error.
_warning = partial(_Rule, tolerated=1)


def _occurs_again(columns: Columns) -> np.ndarray:
    again = np.ones(len(columns.id), dtype=bool)
    again[np.unique(columns.id, return_index=True)[1]] = False
    return again


def _is_impossible(columns: Columns) -> np.ndarray:
    is_possible = (np.abs(columns.box) <= LARGEST_PIXEL).all(1)  # NaN is not
    return ~is_possible | (columns.area > LARGEST_PIXEL**2)


def _is_outside(columns: Columns) -> np.ndarray:
    corner = columns.box[:, :2]
    return ((corner <= -columns.box[:, 2:]) | (corner >= columns.size)).any(1)


_REAL_BOX = 'remove the annotation or write its real box, [x, y, width, height] in pixels.'
#: What makes an annotation unusable; the first that fits counts.
_ERRORS = (
    _Rule('duplicate annotation id', _occurs_again, 'number the annotations 1, 2, 3, ...'),
    _Rule(
        'unknown image id',
        lambda columns: columns.image < 0,
        "add the image to 'images' or remove the annotation.",
    ),
    _Rule(
        'unknown category id',
        lambda columns: columns.label < 0,
        "add the category to 'categories' or remove the annotation, which training leaves out.",
    ),
    _Rule('box of impossible size', _is_impossible, f'{_REAL_BOX[:-1]}, each below 10^9.'),
    _Rule(
        'box of negative size',
        lambda columns: (columns.box[:, 2:] < 0).any(1),
        'bbox is [x, y, width, height]; corners [x1, y1, x2, y2] must be turned into it.',
    ),
    _Rule(
        'box of zero size',
        lambda columns: (columns.box[:, 2:] == 0).any(1),
        _REAL_BOX,
        # Official COCO has two in 860,001, and mmdet skips them.
        tolerated=1e-4,
    ),
    _Rule('box outside the image', _is_outside, "correct the box or the image's width and height."),
    _Rule(
        'area not positive',
        lambda columns: ~(columns.area > 0),
        'set area to the pixels of the object, or width * height of the box.',
    ),
)


def _overhangs(columns: Columns) -> np.ndarray:
    ends = columns.box[:, :2] + columns.box[:, 2:]
    found = (ends > columns.size + OVERHANG_PIXELS).any(1)
    return found & (found.mean() > _OVERHANG_SHARE)


def _are_corners(columns: Columns) -> np.ndarray:
    """Boxes beyond the image, where all would fit as corners."""
    start = columns.box[:, :2]
    end = columns.box[:, 2:]
    fits = (end > start) & (end <= columns.size + OVERHANG_PIXELS)
    return _overhangs(columns) & fits.all()


def _has_odd_area(columns: Columns) -> np.ndarray:
    box_area = columns.box[:, 2:].prod(1)
    found = (columns.area > 1.1 * box_area + 10) | (columns.area < 0.01 * box_area)
    return found & (found.mean() > _AREA_SHARE)


def _is_repeated(columns: Columns) -> np.ndarray:
    """Annotations of the class and box of an earlier one of their image."""
    box = (columns.box + 0.0).view(np.int64)
    # Wraps around in 64 bits: two different boxes hardly ever have the same number.
    keys = np.column_stack([columns.image, columns.label, box]) @ _FACTORS
    order = np.argsort(keys, kind='stable')
    found = np.zeros(len(keys), dtype=bool)
    found[order[1:]] = np.diff(keys[order]) == 0
    return found


def _mask_rules(
    kind: str, form: int, fix: str, tolerated: float, keys: tuple[str, ...]
) -> tuple[_Rule, _Rule]:
    """An error where masks of a ``form`` are trained on, elsewhere a warning."""

    def is_needed(columns: Columns) -> np.ndarray:
        return (columns.mask == form) & columns.needs_mask

    def is_spare(columns: Columns) -> np.ndarray:
        return (columns.mask == form) & ~columns.needs_mask

    return _Rule(kind, is_needed, fix, tolerated, keys), _warning(kind, is_spare, fix, keys=keys)


#: What looks wrong in the annotations that can be used.
_DOUBTS = (
    _Rule('boxes are corners', _are_corners, 'turn them into [x, y, width, height].'),
    _warning(
        'boxes reach beyond the image',
        _overhangs,
        'check width and height of the images, and that bbox is [x, y, width, height].',
    ),
    _Rule(
        'boxes in fractions',
        lambda columns: (
            (columns.box[:, :2] + columns.box[:, 2:] <= 1).all(1) & (columns.size > 1).all(1)
        ),
        'multiply x and width by the width of the image, y and height by its height.',
        tolerated=0.1,
    ),
    _warning(
        'area does not fit the box',
        _has_odd_area,
        'set area to the pixels of the object, or width * height of the box.',
    ),
    _warning('same box twice', _is_repeated, 'remove the copy, which counts as missed.'),
    _warning(
        'rotated box',
        lambda columns: columns.is_turned,
        'export polygons or masks, and boxes around them: bbox is the box before it is turned.',
    ),
    _warning(
        'object to ignore',
        lambda columns: columns.is_ignored & (columns.crowd == 0),
        'iscrowd=1 in place of ignore, by which COCO counts the object as missed.',
    ),
    _warning(
        'annotation id 0', lambda columns: columns.id == 0, 'number the annotations 1, 2, 3, ...'
    ),
    _Rule(
        'object without a mask',
        lambda columns: (columns.mask == 0) & columns.needs_mask,
        'write its segmentation, remove the annotation, or with_mask=False of LoadAnnotations.',
    ),
    *_mask_rules(
        'mask elsewhere than the box',
        -2,
        'write both in pixels of the image, and the mask of this object.',
        0.01,
        ('segmentation', 'bbox'),
    ),
    *_mask_rules(
        'mask that cannot be drawn',
        -1,
        'segmentation is a list of polygons [[x1, y1, x2, y2, x3, y3, ...]], or an RLE whose size '
        'is [height, width] of the image.',
        0,
        ('segmentation',),
    ),
)


ANNOTATION_FIXES = {rule.kind: rule.fix for rule in (*_ERRORS, *_DOUBTS)}


def scan_annotations(
    annotations: list,
    sizes: dict,
    wanted: Collection[str],
    require_masks: bool,
    report: CocoReport,
    found: Findings,
) -> None:
    """Check and count annotations; the report gets columns, counts and bad annotations.

    ``sizes`` are (width, height) by image id, ``wanted`` the class names that are trained on.
    """
    is_wanted = {number: name in wanted for number, name in report.names.items()}
    columns, has_form = _columns(annotations, sizes, is_wanted, require_masks)
    for index in np.flatnonzero(~has_form).tolist():
        ann = annotations[index]
        report.bad_annotations.add(index)
        if found.lacks_keys(ann, f'annotations[{index}]', tuple(_FORMS)):
            continue
        for key, fits in _FORMS.items():
            if not fits([ann[key]])[0]:
                text = f'{_where(index, ann)}: {key} is {shown(ann[key])}'
                found.add('malformed value', text)

    def add(rule: _Rule, places: np.ndarray) -> None:
        is_error = len(places) > rule.tolerated * len(annotations)
        for index in places[:MAX_EXAMPLES].tolist():
            ann = annotations[index]
            values = ', '.join(f'{key} is {shown(ann.get(key))}' for key in rule.keys)
            size = ' x '.join(map(str, sizes.get(ann['image_id'], ('unknown',))))
            found.add(rule.kind, f'{_where(index, ann)}: {values}, image {size}', is_error)
        if len(places) > MAX_EXAMPLES:
            found.by_kind[rule.kind].count += len(places) - MAX_EXAMPLES

    is_bad = np.zeros(len(columns.place), dtype=bool)
    for rule in _ERRORS:
        mask = rule.where(columns) & ~is_bad
        is_bad |= mask
        add(rule, columns.place[mask])
    report.bad_annotations.update(columns.place[is_bad].tolist())
    good = Columns(*(column[~is_bad] for column in columns))
    report.columns = good
    if len(good.id):
        for rule in _DOUBTS:
            add(rule, good.place[rule.where(good)])
    if not annotations:
        found.add('no annotation at all', "'annotations' is empty", is_error=False)
    size = (good.area >= SMALL_AREA).astype(np.int64) + (good.area >= LARGE_AREA)
    size[good.crowd == 1] = 3
    counts = np.bincount(good.label * 4 + size, minlength=4 * len(is_wanted)).reshape(-1, 4)
    for name, numbers in zip(report.names.values(), counts.tolist()):
        count = ClassCount(*numbers)
        report.counts[name] = count
        if name in wanted and count.crowd and not count.total:
            text = f'class {name!r} has {count.crowd} annotations, each with iscrowd=1'
            found.add('class of crowds alone', text, is_error=False)


def _where(index: int, ann: dict) -> str:
    return f'annotations[{index}] (id {shown(ann["id"])}, image_id {shown(ann["image_id"])})'
