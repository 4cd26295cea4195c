"""The annotations of a COCO file as columns, and the table of what can be wrong with them.

``instances_train2017.json`` (860,001 annotations) takes about a second.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, compress, repeat
from math import inf
from typing import NamedTuple

import numpy as np

from mmrank.datasets.checks.coco_report import LARGE_AREA, SMALL_AREA, ClassCount, CocoReport
from mmrank.datasets.checks.data_report import Findings, is_number, shown

# Official COCO has two boxes of zero height in 860,001 and mmdet skips them: so few are a warning,
# more are an error.
_TOLERATED_EMPTY_BOXES = 1e-4
#: Largest coordinate, width and height in pixels; float32 must hold it.
LARGEST_PIXEL = 1e9
# Above this share of boxes in the pixel at 0, they are normalised.
_FRACTIONS = 0.1
# A box that reaches further than this beyond the image is suspicious.
_OVERHANG_PIXELS = 2
_OVERHANG_FRACTION = 0.2
#: Annotations that are read at a time; they stay in the cache.
_CHUNK = 1 << 10
#: By which image, class and box become one number; odd, so that no bit is lost.
_FACTORS = (
    -7046029254386353131,
    3935559000370003845,
    2862933555777941757,
    6364136223846793005,
    1181783497276652981,
    7664345821815920749,
)
#: Of 64 bits with a sign.
_LEAST_ID = -(1 << 63)
_NUMBERS = frozenset((int, float))


def is_number_id(value: object) -> bool:
    """Whether a value can be the id of an annotation: evaluators keep it in 64 bits."""
    return type(value) is int and _LEAST_ID <= value < -_LEAST_ID


def _are_references(values: list) -> list[bool]:
    return [type(x) is int or type(x) is str for x in values]


#: Which values of a key have the form that COCO requires.
_FORMS: dict[str, Callable[[list], list[bool]]] = {
    'id': lambda values: [type(x) is int and _LEAST_ID <= x < -_LEAST_ID for x in values],
    'image_id': _are_references,
    'category_id': _are_references,
    'bbox': lambda values: [
        type(x) is list and len(x) == 4 and _NUMBERS.issuperset(map(type, x)) for x in values
    ],
    'area': lambda values: [type(x) in _NUMBERS for x in values],
    'iscrowd': lambda values: [
        (type(x) in _NUMBERS or type(x) is bool) and x in (0, 1) for x in values
    ],
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

    def taken(self, mask: np.ndarray) -> 'Columns':
        """The annotations where a (n,) mask is true."""
        return Columns(*(column[mask] for column in self))


@dataclass
class CocoFile:
    """What annotations refer to: (width, height) by image id, class names by category id."""

    sizes: dict
    names: dict

    def columns(self, annotations: list) -> tuple[Columns, np.ndarray]:
        """The annotations whose values have the form of COCO, and (n,) bool, which ones have."""
        image_index = {key: i for i, key in enumerate(self.sizes)}
        class_index = {key: i for i, key in enumerate(self.names)}
        sizes = np.array([*self.sizes.values(), (inf, inf)], dtype=float)
        parts = []
        forms = []
        for start in range(0, max(len(annotations), 1), _CHUNK):
            values, has_form = _well_formed(annotations[start : start + _CHUNK])
            forms.append(has_form)
            image = _positions(values['image_id'], image_index)
            part = Columns(
                place=start + np.flatnonzero(has_form),
                id=np.array(values['id'], dtype=np.int64),
                image=image,
                label=_positions(values['category_id'], class_index),
                size=sizes[image],
                box=_floats(list(chain.from_iterable(values['bbox']))).reshape(-1, 4),
                area=_floats(values['area']),
                crowd=np.array(values['iscrowd'], dtype=np.int64),
            )
            parts.append(part)
        return Columns(*map(np.concatenate, zip(*parts))), np.concatenate(forms)


def _well_formed(annotations: list) -> tuple[dict[str, list], np.ndarray]:
    """Values by key of the annotations that have all of them in their forms, and which have."""
    entries = [ann if type(ann) is dict else {} for ann in annotations]
    values = {key: [ann.get(key) for ann in entries] for key in _FORMS}
    has_form = np.ones(len(entries), dtype=bool)
    for key, fits in _FORMS.items():
        has_form &= np.array(fits(values[key]), dtype=bool)
    if not has_form.all():
        values = {key: list(compress(column, has_form)) for key, column in values.items()}
    return values, has_form


def _positions(ids: list, index: dict) -> np.ndarray:
    """(n,) position by id, -1 for an unknown one."""
    return np.fromiter(map(index.get, ids, repeat(-1)), np.int64, len(ids))


def _floats(values: list) -> np.ndarray:
    """(N,) float64 of numbers; integers that it cannot hold become huge ones."""
    try:
        return np.fromiter(values, float, len(values))
    except OverflowError:
        return np.array([x if type(x) is float else max(-1e300, min(x, 1e300)) for x in values])


class Rule(NamedTuple):
    """A kind of problem.

    ``where`` says in which annotations, (n,) bool; ``text`` is what a finding says of one, with the
    names of :func:`_words` in braces.
    """

    kind: str
    where: Callable[[Columns], np.ndarray]
    text: str
    fix: str


def _occurs_again(columns: Columns) -> np.ndarray:
    """Whether each id occurs earlier in the file."""
    again = np.ones(len(columns.id), dtype=bool)
    again[np.unique(columns.id, return_index=True)[1]] = False
    return again


def _is_impossible(columns: Columns) -> np.ndarray:
    is_far = (np.abs(columns.box) > LARGEST_PIXEL).any(1)
    return is_far | (columns.area > LARGEST_PIXEL**2)


def _is_outside(columns: Columns) -> np.ndarray:
    corner = columns.box[:, :2]
    return ((corner <= -columns.box[:, 2:]) | (corner >= columns.size)).any(1)


_ID_RULES = (
    Rule(
        'duplicate annotation id',
        _occurs_again,
        'this id occurs again',
        'number the annotations 1, 2, 3, ...; merged files are the usual cause.',
    ),
    Rule(
        'unknown image id',
        lambda columns: columns.image < 0,
        'no image has the id {image_id}',
        "add the image to 'images' or remove the annotation.",
    ),
    Rule(
        'unknown category id',
        lambda columns: columns.label < 0,
        'category_id is {category_id}; the file has {known}',
        "add the category to 'categories' or remove the annotation; it would "
        'silently be left out of training.',
    ),
)
#: The first fault of a box is enough.
_BOX_RULES = (
    Rule(
        'box with NaN or infinity',
        lambda columns: ~np.isfinite(columns.box).all(1),
        'bbox is {bbox}',
        'remove the annotation or write its real box; NaN makes the loss NaN.',
    ),
    Rule(
        'box of impossible size',
        _is_impossible,
        'bbox is {bbox}, area is {area}',
        'remove the annotation or write its real box, in pixels; coordinates end at 10^9.',
    ),
    Rule(
        'box of negative size',
        lambda columns: (columns.box[:, 2:] < 0).any(1),
        'bbox is {bbox}, its {shorter_side} is {shorter}',
        'bbox is [x, y, width, height]; corners [x1, y1, x2, y2] must be turned into it.',
    ),
    Rule(
        'box of zero size',
        lambda columns: (columns.box[:, 2:] == 0).any(1),
        'bbox is {bbox}, {width} x {height} pixels',
        'remove the annotation or write its real box.',
    ),
    Rule(
        'box outside the image',
        _is_outside,
        'bbox is {bbox}, the image is {image_size}',
        "correct the box or the image's width and height: the box covers no pixel of the image.",
    ),
    Rule(
        'area not positive',
        lambda columns: ~(columns.area > 0),
        'area is {area}',
        'set area to the pixels of the object, or width * height of the box; '
        'mmdet drops objects without area.',
    ),
)
ANNOTATION_FIXES = {rule.kind: rule.fix for rule in _ID_RULES + _BOX_RULES}


def _words(ann: dict, file: CocoFile) -> dict[str, str]:
    """What the texts of the rules name of an annotation."""
    _, _, width, height = ann['bbox']
    known = ', '.join(map(shown, list(file.names)[:10]))
    return {
        **{key: shown(ann[key]) for key in _FORMS},
        'known': known + (', ...' if len(file.names) > 10 else ''),
        'width': shown(width),
        'height': shown(height),
        'shorter': shown(min(width, height)),
        'shorter_side': 'width' if width < height else 'height',
        'image_size': '{} x {}'.format(*file.sizes.get(ann['image_id'], (inf, inf))),
    }


def scan_annotations(
    annotations: list, file: CocoFile, wanted: set | None, report: CocoReport, found: Findings
) -> dict[str, set]:
    """Check and count annotations.

    ``wanted`` are the class names that are trained on (None: all). ``report`` gets counts and bad
    annotations. Returns the image ids with any annotation (``'any'``), and with one of a wanted
    class (``'wanted'``).
    """
    columns, has_form = file.columns(annotations)
    for index in np.flatnonzero(~has_form).tolist():
        _report_form(index, annotations[index], found)
        report.bad_annotations.add(index)
    is_bad_id = np.zeros(len(columns.place), dtype=bool)
    is_bad_box = is_bad_id.copy()
    for rule in _ID_RULES:
        mask = rule.where(columns)
        is_bad_id |= mask
        _report(rule, columns.place[mask], annotations, file, found)
    for rule in _BOX_RULES:
        mask = rule.where(columns) & ~is_bad_box
        is_bad_box |= mask
        _report(rule, columns.place[mask], annotations, file, found)
    is_bad = is_bad_id | is_bad_box
    report.bad_annotations.update(columns.place[is_bad].tolist())
    empty = found.by_kind.get('box of zero size')
    if empty and empty.count <= _TOLERATED_EMPTY_BOXES * len(annotations):
        empty.is_error = False
    good = columns.taken(~is_bad)
    _find_other_units(good, len(annotations), found)
    _find_repeated(good, found)
    _find_turned(annotations, found)
    if not columns.id.all():
        reason = 'pycocotools never counts this object as found'
        found.add('annotation id 0', reason, is_error=False)
    if not annotations:
        found.add('no annotation at all', "'annotations' is empty", is_error=False)
    _count(good, file, report)
    for name, count in report.counts.items():
        if count.crowd and not count.total and (wanted is None or name in wanted):
            text = f'class {name!r} has {count.crowd} annotations, each with iscrowd=1'
            found.add('class of crowds alone', text, is_error=False)
    is_wanted = np.array([wanted is None or x in wanted for x in file.names.values()], dtype=bool)
    ids = list(file.sizes)
    used = {'any': good.image, 'wanted': good.image[is_wanted[good.label]]}
    return {key: {ids[i] for i in np.unique(x).tolist()} for key, x in used.items()}


def _report(
    rule: Rule, places: np.ndarray, annotations: list, file: CocoFile, found: Findings
) -> None:
    for index in places[: max(found.max_examples, 1)].tolist():
        ann = annotations[index]
        found.add(rule.kind, f'{_where(index, ann)}: {rule.text.format(**_words(ann, file))}')
    if len(places):
        found.by_kind[rule.kind].count = len(places)


def _report_form(index: int, ann: object, found: Findings) -> None:
    if found.lacks_keys(ann, f'annotations[{index}]', tuple(_FORMS)):
        return
    for key, has_form in _FORMS.items():
        if not has_form([ann[key]])[0]:
            found.add('malformed value', f'{_where(index, ann)}: {key} is {shown(ann[key])}')


def _where(index: int, ann: dict) -> str:
    return f'annotations[{index}] (id {shown(ann["id"])}, image_id {shown(ann["image_id"])})'


def _find_other_units(good: Columns, num_annotations: int, found: Findings) -> None:
    """Report boxes that are corners, or fractions of the sides of their images."""
    first = good.box[:, :2]
    second = good.box[:, 2:]
    largest = good.size + _OVERHANG_PIXELS
    overhang = int((first + second > largest).any(1).sum())
    if overhang > _OVERHANG_FRACTION * num_annotations:
        are_corners = bool(((second > first) & (second <= largest)).all())
        reading = ', and all of them would fit as corners [x1, y1, x2, y2]' if are_corners else ''
        found.add(
            'boxes reach beyond the image',
            f'{overhang} of {num_annotations} boxes end more than '
            f'{_OVERHANG_PIXELS} pixels beyond the right or lower edge{reading}',
            is_error=are_corners,
        )
    fractions = int(((first + second <= 1) & (good.size > 1)).all(1).sum())
    if fractions:
        found.add(
            'boxes in fractions',
            f'{fractions} of the {len(first)} boxes end within 1 pixel of 0',
            is_error=fractions > _FRACTIONS * len(first),
        )


def _find_repeated(good: Columns, found: Findings) -> None:
    """Report annotations of the same class and box in one image."""
    # Wraps around in 64 bits: two different boxes hardly ever have the same number.
    keys = np.column_stack([good.image, good.label, (good.box + 0.0).view(np.int64)]) @ _FACTORS
    order = np.argsort(keys, kind='stable')
    again = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(again):
        one, other = good.place[order][again[0] : again[0] + 2]
        text = f'annotations[{one}] and annotations[{other}]; {len(again)} repeat another one'
        found.add('same box twice', text, is_error=False)


def _find_turned(annotations: list, found: Findings) -> None:
    """Report boxes with a rotation in addition, as CVAT exports them."""
    for index, ann in enumerate(annotations):
        if type(ann) is not dict or 'attributes' not in ann:
            continue
        extra = ann['attributes']
        turn = extra.get('rotation') if isinstance(extra, dict) else None
        if is_number(turn) and turn % 360:
            text = f'annotations[{index}]: attributes.rotation is {turn:g}'
            found.add('rotated box', text, is_error=False)


def _count(good: Columns, file: CocoFile, report: CocoReport) -> None:
    """Write the counts of classes and images to the report."""
    size = (good.area >= SMALL_AREA).astype(np.int64) + (good.area >= LARGE_AREA)
    size[good.crowd == 1] = 3
    counts = np.bincount(good.label * 4 + size, minlength=4 * len(file.names)).reshape(-1, 4)
    for name, own in zip(file.names.values(), counts.tolist()):
        report.counts[name] = ClassCount(*own)
    sums = good.label + good.box @ (1, 3, 7, 13)
    num_images = len(file.sizes)
    objects = np.bincount(good.image, minlength=num_images)
    report.objects = np.stack([objects, np.bincount(good.image, sums, num_images)], axis=1)
