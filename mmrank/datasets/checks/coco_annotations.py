"""The rules for annotations of a COCO file.

A thousand annotations at a time become arrays, so ``instances_train2017.json`` (860,001
annotations) takes less than a second.
"""

from collections.abc import Iterable
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
#: Annotations that become arrays at a time; they stay in the cache.
_CHUNK = 1 << 10
_EMPTY = 'box of zero size'
_IMPOSSIBLE = 'box of impossible size'
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


def is_number_id(value: object) -> bool:
    """Whether a value can be the id of an annotation: evaluators keep it in 64 bits."""
    return type(value) is int and _LEAST_ID <= value < -_LEAST_ID


def _are_number_ids(values: list) -> bool:
    return set(map(type, values)) <= {int} and all(map(is_number_id, (min(values), max(values))))


def _are_ids(values: list) -> bool:
    return set(map(type, values)) <= {int, str}


def _are_numbers(values: Iterable) -> bool:
    return set(map(type, values)) <= {int, float}


def _are_boxes(values: list) -> bool:
    return (
        set(map(type, values)) <= {list}
        and set(map(len, values)) <= {4}
        and _are_numbers(chain.from_iterable(values))
    )


def _are_flags(values: list) -> bool:
    return set(map(type, values)) <= {int, float, bool} and set(values) <= {0, 1}


#: Whether the values of a key have the form that COCO requires.
_FORMS = {
    'id': _are_number_ids,
    'image_id': _are_ids,
    'category_id': _are_ids,
    'bbox': _are_boxes,
    'area': _are_numbers,
    'iscrowd': _are_flags,
}


class _Values(NamedTuple):
    """Values of n annotations."""

    place: np.ndarray  # (n,) position in the file
    image: np.ndarray  # (n,) position of the image, -1 for an unknown one
    label: np.ndarray  # (n,) position of the category, -1 for an unknown one
    size: np.ndarray  # (n, 2) width and height of the image, infinite for an unknown one
    box: np.ndarray  # (n, 4) x, y, width and height
    area: np.ndarray  # (n,)
    crowd: np.ndarray  # (n,) 0 or 1


def scan_annotations(
    annotations: list,
    images: dict,
    names: dict,
    wanted: set | None,
    report: CocoReport,
    found: Findings,
) -> dict[str, set]:
    """Check and count annotations.

    ``images`` are (width, height) by image id, ``names`` class names by category id, ``wanted`` the
    class names that are trained on (None: all). ``report`` gets counts and bad annotations. Returns
    the image ids with any annotation (``'any'``), and with one of a wanted class (``'wanted'``).
    """
    scan = _Scan(images, names, report, found)
    for start in range(0, len(annotations), _CHUNK):
        scan.add(start, annotations[start : start + _CHUNK])
    if scan.empty and len(scan.empty) <= _TOLERATED_EMPTY_BOXES * len(annotations):
        found.by_kind[_EMPTY].is_error = False
    report.bad_annotations.update(scan.empty)
    good = _Values(*map(np.concatenate, zip(*scan.good)))
    _find_other_units(good, len(annotations), found)
    _find_repeated(good, found)
    _find_turned(annotations, found)
    if 0 in scan.seen_ids:
        reason = 'pycocotools never counts this object as found'
        found.add('annotation id 0', reason, is_error=False)
    if not annotations:
        found.add('no annotation at all', "'annotations' is empty", is_error=False)
    _count(good, names, len(images), report)
    for name, count in report.counts.items():
        if count.crowd and not count.total and (wanted is None or name in wanted):
            text = f'class {name!r} has {count.crowd} annotations, each with iscrowd=1'
            found.add('class of crowds alone', text, is_error=False)
    is_wanted = np.array([wanted is None or x in wanted for x in names.values()], dtype=bool)
    ids = list(images)
    used = {'any': good.image, 'wanted': good.image[is_wanted[good.label]]}
    return {key: {ids[i] for i in np.unique(x).tolist()} for key, x in used.items()}


class _Scan:
    """Checks chunks of annotations and keeps the values of the good ones."""

    def __init__(self, images: dict, names: dict, report: CocoReport, found: Findings) -> None:
        self.images = images
        self.names = names
        self.report = report
        self.found = found
        self.image_index = {key: i for i, key in enumerate(images)}
        self.class_index = {key: i for i, key in enumerate(names)}
        self.sizes = np.array([*images.values(), (inf, inf)], dtype=float)
        self.seen_ids: set = set()
        self.empty: list[int] = []  # positions of the boxes of zero size
        self.good = [self._values(np.arange(0), {key: [] for key in _FORMS})]

    def add(self, start: int, chunk: list) -> None:
        """Check some annotations, the first at position ``start``."""
        places = np.arange(start, start + len(chunk))
        columns = _columns(chunk)
        if columns is None:
            has_form = [self._check_form(start + i, ann) for i, ann in enumerate(chunk)]
            chunk = list(compress(chunk, has_form))
            places = places[has_form]
            columns = _columns(chunk)
        if not columns:
            return
        values = self._values(places, columns)
        id_faults = {
            'duplicate annotation id': self._occur_again(columns['id']),
            'unknown image id': values.image < 0,
            'unknown category id': values.label < 0,
        }
        corner = values.box[:, :2]
        sides = values.box[:, 2:]
        box_faults = {
            'box with NaN or infinity': ~np.isfinite(values.box).all(1),
            _IMPOSSIBLE: (np.abs(values.box) > LARGEST_PIXEL).any(1)
            | (values.area > LARGEST_PIXEL**2),
            'box of negative size': (sides < 0).any(1),
            _EMPTY: (sides == 0).any(1),
            'box outside the image': ((corner <= -sides) | (corner >= values.size)).any(1),
            'area not positive': ~(values.area > 0),
        }
        bad = np.logical_or.reduce([*id_faults.values(), *box_faults.values()])
        for i in np.flatnonzero(bad).tolist():
            kinds = [kind for kind, mask in id_faults.items() if mask[i]]
            # The first fault of a box is enough.
            kinds += [kind for kind, mask in box_faults.items() if mask[i]][:1]
            for kind in kinds:
                self.found.add(kind, f'{_where(places[i], chunk[i])}: {self._text(kind, chunk[i])}')
            if kinds == [_EMPTY]:
                self.empty.append(int(places[i]))
            else:
                self.report.bad_annotations.add(int(places[i]))
        self.good.append(_Values(*(x[~bad] for x in values)))

    def _check_form(self, index: int, ann: object) -> bool:
        """Whether an annotation has all keys, and values of their forms; if not, it is reported."""
        if not self.found.lacks_keys(ann, f'annotations[{index}]', tuple(_FORMS)):
            wrong = [key for key, has_form in _FORMS.items() if not has_form([ann[key]])]
            if not wrong:
                return True
            for key in wrong:
                text = f'{_where(index, ann)}: {key} is {shown(ann[key])}'
                self.found.add('malformed value', text)
        self.report.bad_annotations.add(index)
        return False

    def _values(self, places: np.ndarray, columns: dict[str, list]) -> _Values:
        count = len(places)
        image = map(self.image_index.get, columns['image_id'], repeat(-1))
        image = np.fromiter(image, np.int64, count)
        label = map(self.class_index.get, columns['category_id'], repeat(-1))
        return _Values(
            places,
            image,
            np.fromiter(label, np.int64, count),
            self.sizes[image],
            _floats(list(chain.from_iterable(columns['bbox']))).reshape(count, 4),
            _floats(columns['area']),
            np.array(columns['iscrowd'], dtype=np.int64),
        )

    def _occur_again(self, ids: list[int]) -> np.ndarray:
        """Whether each id occurs earlier in the file, (n,) bool."""
        again = np.zeros(len(ids), dtype=bool)
        fresh = set(ids)
        if len(fresh) < len(ids) or not fresh.isdisjoint(self.seen_ids):
            for i, key in enumerate(ids):
                again[i] = key in self.seen_ids
                self.seen_ids.add(key)
        self.seen_ids |= fresh
        return again

    def _text(self, kind: str, ann: dict) -> str:
        """What a finding says of an annotation."""
        if kind == 'duplicate annotation id':
            return 'this id occurs again'
        if kind == 'unknown image id':
            return f'no image has the id {shown(ann["image_id"])}'
        if kind == 'unknown category id':
            known = ', '.join(map(shown, list(self.names)[:10]))
            more = ', ...' if len(self.names) > 10 else ''
            return f'category_id is {shown(ann["category_id"])}; the file has {known}{more}'
        _, _, width, height = ann['bbox']
        is_of_area = kind == _IMPOSSIBLE and all(abs(x) <= LARGEST_PIXEL for x in ann['bbox'])
        if is_of_area or kind == 'area not positive':
            return f'area is {shown(ann["area"])}'
        box = f'bbox is {shown(ann["bbox"])}'
        if kind == 'box of negative size':
            side = 'width' if width < 0 else 'height'
            return f'{box}, its {side} is {min(width, height):g}'
        if kind == _EMPTY:
            return f'{box}, {width:g} x {height:g} pixels'
        if kind == 'box outside the image':
            columns, rows = self.images.get(ann['image_id'], (inf, inf))
            return f'{box}, the image is {columns} x {rows}'
        return box


def _where(index: int, ann: dict) -> str:
    return f'annotations[{index}] (id {shown(ann["id"])}, image_id {shown(ann["image_id"])})'


def _columns(annotations: list) -> dict[str, list] | None:
    """Values by key, {} without annotations; None where a key lacks or a form is another."""
    if not annotations:
        return {}
    try:
        columns = {key: [ann[key] for ann in annotations] for key in _FORMS}
    except (KeyError, TypeError):
        return None
    return columns if all(has_form(columns[key]) for key, has_form in _FORMS.items()) else None


def _floats(values: list) -> np.ndarray:
    """(N,) float64 of numbers; integers that it cannot hold become huge ones."""
    try:
        return np.fromiter(values, float, len(values))
    except OverflowError:
        return np.array([x if type(x) is float else max(-1e300, min(x, 1e300)) for x in values])


def _find_other_units(good: _Values, num_annotations: int, found: Findings) -> None:
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


def _find_repeated(good: _Values, found: Findings) -> None:
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
        extra = ann.get('attributes') if isinstance(ann, dict) else None
        turn = extra.get('rotation') if isinstance(extra, dict) else None
        if is_number(turn) and turn % 360:
            text = f'annotations[{index}]: attributes.rotation is {turn:g}'
            found.add('rotated box', text, is_error=False)


def _count(good: _Values, names: dict, num_images: int, report: CocoReport) -> None:
    """Write the counts of classes and images to the report."""
    size = (good.area >= SMALL_AREA).astype(np.int64) + (good.area >= LARGE_AREA)
    size[good.crowd == 1] = 3
    counts = np.bincount(good.label * 4 + size, minlength=4 * len(names)).reshape(-1, 4)
    for name, own in zip(names.values(), counts.tolist()):
        report.counts[name] = ClassCount(*own)
    sums = good.label + good.box @ (1, 3, 7, 13)
    objects = np.bincount(good.image, minlength=num_images)
    report.objects = np.stack([objects, np.bincount(good.image, sums, num_images)], axis=1)
