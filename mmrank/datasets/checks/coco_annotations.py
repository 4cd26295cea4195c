"""The rules for annotations of a COCO file, applied to chunks of them as arrays.

A form says which types the values of a key have, a rule what must hold for values of that form.
Both take many annotations at once, so ``instances_train2017.json`` (860,001 annotations) takes less
than a second.
"""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from math import inf
from typing import NamedTuple

import numpy as np

from mmrank.datasets.checks.coco_report import LARGE_AREA, SMALL_AREA, ClassCount, CocoReport
from mmrank.datasets.checks.data_report import Findings, is_id, is_number, shown

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
#: Odd, so that no bit of an annotation is lost.
_FACTORS = np.array(
    [
        -7046029254386353131,
        3935559000370003845,
        2862933555777941757,
        *(6364136223846793005, 1181783497276652981, 7664345821815920749),
    ],
    np.int64,
)
#: Of 64 bits with a sign.
_LEAST_ID = -(1 << 63)


def _are_ids(values: Iterable) -> bool:
    return set(map(type, values)) <= {int, str}


def is_number_id(value: object) -> bool:
    """Whether a value can be the id of an annotation: evaluators keep it in 64 bits."""
    return type(value) is int and _LEAST_ID <= value < -_LEAST_ID


def _are_number_ids(values: list) -> bool:
    return set(map(type, values)) <= {int} and all(map(is_number_id, (min(values), max(values))))


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


#: Form of each value: of what identifies an annotation, and of its box.
_ID_FORMS = {'id': _are_number_ids, 'image_id': _are_ids, 'category_id': _are_ids}
_BOX_FORMS = {'bbox': _are_boxes, 'area': _are_numbers, 'iscrowd': _are_flags}
_FORMS = {**_ID_FORMS, **_BOX_FORMS}
#: Stand for values of another form.
_SUBSTITUTES = {'image_id': None, 'category_id': None}
_SUBSTITUTES |= {'bbox': [0, 0, 1, 1], 'area': 1, 'iscrowd': 0}


class _Chunk(NamedTuple):
    """Values of n annotations."""

    again: np.ndarray  # (n,) bool, whether the id occurs earlier
    image: np.ndarray  # (n,) position of the image, -1 for an unknown one
    label: np.ndarray  # (n,) position of the category, -1 for an unknown one
    size: np.ndarray  # (n, 2) width and height of the image, infinite for an unknown one
    box: np.ndarray  # (n, 4) x, y, width and height
    area: np.ndarray  # (n,)
    crowd: np.ndarray  # (n,) 0 or 1


class _Rule(NamedTuple):
    """A kind of problem, where a chunk has it, and what the finding says of an annotation."""

    kind: str
    mask: Callable[[_Chunk], np.ndarray]
    text: Callable[[dict, '_Scan'], str]


def _box(ann: dict, scan: '_Scan | None' = None) -> str:
    return f'bbox is {shown(ann["bbox"])}'


def _area(ann: dict, scan: '_Scan') -> str:
    return f'area is {shown(ann["area"])}'


def _negative(ann: dict, scan: '_Scan') -> str:
    _, _, w, h = ann['bbox']
    return f'{_box(ann)}, its {"width" if w < 0 else "height"} is {min(w, h):g}'


def _outside(ann: dict, scan: '_Scan') -> str:
    image_id = ann['image_id'] if is_id(ann['image_id']) else None
    width, height = scan.images.get(image_id, (inf, inf))
    return f'{_box(ann)}, the image is {width} x {height}'


def _unknown_category(ann: dict, scan: '_Scan') -> str:
    known = ', '.join(map(shown, list(scan.names)[:10])) + (', ...' if len(scan.names) > 10 else '')
    return f'category_id is {shown(ann["category_id"])}; the file has {known}'


_ID_RULES = (
    _Rule('duplicate annotation id', lambda c: c.again, lambda ann, scan: 'this id occurs again'),
    _Rule(
        'unknown image id',
        lambda c: c.image < 0,
        lambda ann, scan: f'no image has the id {shown(ann["image_id"])}',
    ),
    _Rule('unknown category id', lambda c: c.label < 0, _unknown_category),
)
_BOX_RULES = (
    _Rule('box with NaN or infinity', lambda c: ~np.isfinite(c.box).all(1), _box),
    _Rule('box of impossible size', lambda c: (np.abs(c.box) > LARGEST_PIXEL).any(1), _box),
    _Rule('box of negative size', lambda c: (c.box[:, 2:] < 0).any(1), _negative),
    _Rule(
        _EMPTY,
        lambda c: (c.box[:, 2:] == 0).any(1),
        lambda ann, scan: f'{_box(ann)}, {ann["bbox"][2]:g} x {ann["bbox"][3]:g} pixels',
    ),
    _Rule(
        'box outside the image',
        lambda c: ((-c.box[:, 2:] >= c.box[:, :2]) | (c.box[:, :2] >= c.size)).any(1),
        _outside,
    ),
    _Rule('box of impossible size', lambda c: c.area > LARGEST_PIXEL**2, _area),
    _Rule('area not positive', lambda c: ~(c.area > 0), _area),
)
#: Forms, rules, and how many rules are reported of an annotation: of a box the first that holds.
_GROUPS = ((_ID_FORMS, _ID_RULES, len(_ID_RULES)), (_BOX_FORMS, _BOX_RULES, 1))


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
    if scan.overhang > _OVERHANG_FRACTION * len(annotations):
        are_corners = scan.corners == scan.boxes
        reading = ', and all of them would fit as corners [x1, y1, x2, y2]' if are_corners else ''
        found.add(
            'boxes reach beyond the image',
            f'{scan.overhang} of {len(annotations)} boxes end more than '
            f'{_OVERHANG_PIXELS} pixels beyond the right or lower edge{reading}',
            is_error=are_corners,
        )
    if scan.fractions:
        found.add(
            'boxes in fractions',
            f'{scan.fractions} of the {scan.boxes} boxes end within 1 pixel of 0',
            is_error=scan.fractions > _FRACTIONS * scan.boxes,
        )
    scan.find_repeated()
    scan.find_turned(annotations)
    if 0 in scan.seen_ids:
        reason = 'pycocotools never counts this object as found'
        found.add('annotation id 0', reason, is_error=False)
    if not annotations:
        found.add('no annotation at all', "'annotations' is empty", is_error=False)
    used = scan.finish(wanted)
    for name, count in report.counts.items():
        if count.crowd and not count.total and (wanted is None or name in wanted):
            text = f'class {name!r} has {count.crowd} annotations, each with iscrowd=1'
            found.add('class of crowds alone', text, is_error=False)
    return used


class _Scan:
    """Checks chunks of annotations and counts the good ones."""

    def __init__(self, images: dict, names: dict, report: CocoReport, found: Findings) -> None:
        self.images, self.names = images, names
        self.report, self.found = report, found
        self.image_index = {key: i for i, key in enumerate(images)}
        self.class_index = {key: i for i, key in enumerate(names)}
        self.sizes = np.array([*images.values(), (inf, inf)], dtype=float)
        # By class: small, medium, large, crowd.
        self.counts = np.zeros((len(names), 4), dtype=np.int64)
        # (2, n): the image and the class of each good annotation.
        self.pairs: list[np.ndarray] = []
        # (n,) position of each good annotation, and a number for its image, class and box.
        self.places: list[np.ndarray] = []
        self.keys: list[np.ndarray] = []
        # By image: good annotations, and the sum of their boxes' numbers.
        self.objects = np.zeros((len(images), 2))
        self.seen_ids: set = set()
        self.empty: list[int] = []  # positions of the boxes of zero size
        # Boxes: all good ones, those that reach beyond their image, those that are in it if read as
        # corners, and those that would be in it in fractions of its sides.
        self.boxes = self.overhang = self.corners = self.fractions = 0

    def add(self, start: int, chunk: list) -> None:
        """Check and count some annotations, the first at position ``start``."""
        # By position in the chunk: a finding or None for each group; nothing where keys lack.
        malformed: dict[int, list[tuple | None]] = {}
        try:
            columns = {key: [ann[key] for ann in chunk] for key in _FORMS}
            has_form = all(form(columns[key]) for key, form in _FORMS.items())
        except (KeyError, TypeError):
            has_form = False
        if not has_form:
            rows = [_in_form(i, ann, malformed) for i, ann in enumerate(chunk)]
            columns = {key: [row[key] for row in rows] for key in _FORMS}
        arrays = self._arrays(columns)
        masks = {rule: rule.mask(arrays) for _, rules, _ in _GROUPS for rule in rules}
        bad = np.logical_or.reduce(list(masks.values()))
        bad[list(malformed)] = True
        for i in np.flatnonzero(bad).tolist():
            faults = malformed.get(i, [None, None])
            findings = []
            for fault, (_, rules, most) in zip(faults, _GROUPS):
                broken = [rule for rule in rules if masks[rule][i] and fault is None][:most]
                findings += [(rule.kind, rule.text(chunk[i], self)) for rule in broken]
                findings += [] if fault is None else [fault]
            self._report(start + i, chunk[i], findings)
        self.places.append(start + np.flatnonzero(~bad))
        self._count(_Chunk(*(x[~bad] for x in arrays)) if bad.any() else arrays)

    def _arrays(self, columns: dict[str, list]) -> _Chunk:
        ids, count = columns['id'], len(columns['id'])
        again, fresh = np.zeros(count, dtype=bool), set(ids)
        if len(fresh) < count or not fresh.isdisjoint(self.seen_ids):
            for i, key in enumerate(ids):
                again[i] = key in self.seen_ids
                self.seen_ids.add(key)
        self.seen_ids |= fresh
        image, label = (
            np.fromiter(map(index.get, columns[key], repeat(-1)), np.int64, count)
            for key, index in (('image_id', self.image_index), ('category_id', self.class_index))
        )
        box = _floats(list(chain.from_iterable(columns['bbox']))).reshape(count, 4)
        area, crowd = _floats(columns['area']), np.array(columns['iscrowd'])
        return _Chunk(again, image, label, self.sizes[image], box, area, crowd)

    def _report(self, index: int, ann: dict, findings: list[tuple[str, str]]) -> None:
        where = f'annotations[{index}]'
        if not self.found.lacks_keys(ann, where, tuple(_FORMS)):
            where += f' (id {shown(ann["id"])}, image_id {shown(ann["image_id"])})'
        for kind, text in findings:
            self.found.add(kind, f'{where}: {text}')
        if {kind for kind, _ in findings} == {_EMPTY}:
            self.empty.append(index)
        else:
            self.report.bad_annotations.add(index)

    def _count(self, good: _Chunk) -> None:
        size = (good.area >= SMALL_AREA).astype(np.int64) + (good.area >= LARGE_AREA)
        size[good.crowd == 1] = 3
        self.counts += np.bincount(good.label * 4 + size, minlength=self.counts.size).reshape(-1, 4)
        self.pairs.append(np.stack([good.image, good.label]))
        # Wraps around in 64 bits: two different boxes hardly ever have the same number.
        bits = np.column_stack([good.image, good.label, (good.box + 0.0).view(np.int64)])
        self.keys.append(bits @ _FACTORS)
        sums = good.label + good.box @ (1, 3, 7, 13)
        np.add.at(self.objects[:, 0], good.image, 1)
        np.add.at(self.objects[:, 1], good.image, sums)
        first, second = good.box[:, :2], good.box[:, 2:]
        largest = good.size + _OVERHANG_PIXELS
        self.boxes += len(first)
        self.overhang += int((first + second > largest).any(1).sum())
        self.corners += int(((second > first) & (second <= largest)).all(1).sum())
        self.fractions += int(((first + second <= 1) & (good.size > 1)).all(1).sum())

    def find_repeated(self) -> None:
        """Report annotations of the same class and box in one image."""
        keys = np.concatenate([np.zeros(0, np.int64), *self.keys])
        order = np.argsort(keys, kind='stable')
        again = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(again):
            places = np.concatenate(self.places)[order]
            one, other = places[again[0]], places[again[0] + 1]
            text = f'annotations[{one}] and annotations[{other}]; {len(again)} repeat another one'
            self.found.add('same box twice', text, is_error=False)

    def find_turned(self, annotations: list) -> None:
        """Report boxes with a rotation beside them, as CVAT exports them."""
        for index, ann in enumerate(annotations):
            extra = ann.get('attributes') if isinstance(ann, dict) else None
            turn = extra.get('rotation') if isinstance(extra, dict) else None
            if is_number(turn) and turn % 360:
                text = f'annotations[{index}]: attributes.rotation is {turn:g}'
                self.found.add('rotated box', text, is_error=False)

    def finish(self, wanted: set | None) -> dict[str, set]:
        """Write the counts to the report; return as :func:`scan_annotations`."""
        for name, counts in zip(self.names.values(), self.counts.tolist()):
            self.report.counts[name] = ClassCount(*counts)
        is_wanted = np.array(
            [wanted is None or x in wanted for x in self.names.values()], dtype=bool
        )
        image, label = np.concatenate([np.zeros((2, 0), np.int64), *self.pairs], 1)
        ids = list(self.images)
        self.report.objects = self.objects
        used = {'any': image, 'wanted': image[is_wanted[label]]}
        return {key: {ids[i] for i in np.unique(x).tolist()} for key, x in used.items()}


def _in_form(i: int, ann: object, malformed: dict) -> dict:
    """The annotation, or one of the form in its place; then ``malformed`` gets an entry for i."""
    if not isinstance(ann, dict) or not ann.keys() >= _FORMS.keys():
        malformed[i] = []
        ann_id = ann.get('id') if isinstance(ann, dict) else None
        return {**_SUBSTITUTES, 'id': ann_id if is_id(ann_id) else object()}
    wrong = [[x for x, form in forms.items() if not form([ann[x]])] for forms, *_ in _GROUPS]
    if not any(wrong):
        return ann
    malformed[i] = [
        ('malformed value', f'{keys[0]} is {shown(ann[keys[0]])}') if keys else None
        for keys in wrong
    ]
    return {**ann, **{x: _SUBSTITUTES.get(x, object()) for keys in wrong for x in keys}}


def _floats(values: list) -> np.ndarray:
    """(N,) float64 of numbers; integers that it cannot hold become huge ones."""
    try:
        return np.fromiter(values, float, len(values))
    except OverflowError:
        return np.array([x if type(x) is float else max(-1e300, min(x, 1e300)) for x in values])
