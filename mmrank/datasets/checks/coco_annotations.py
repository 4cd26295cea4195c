"""The pass over a COCO file's annotations.

``instances_train2017.json`` (860,001 annotations) takes less than a second: chunks are checked as
arrays, and only a chunk with a value of another type is gone through one annotation at a time.
"""

from itertools import chain
from math import inf, isfinite

import numpy as np

from mmrank.datasets.checks.coco_findings import Findings, is_id, is_number, lacks_keys, shown
from mmrank.datasets.checks.coco_report import LARGE_AREA, SMALL_AREA, CocoReport

# Official COCO has two boxes of zero height in 860,001 and mmdet skips them: so few are a warning,
# more are an error.
TOLERATED_EMPTY_BOXES = 1e-4
#: Largest coordinate, width and height in pixels; float32 must hold it.
LARGEST_PIXEL = 1e9
# A box that reaches further than this beyond the image is suspicious.
_OVERHANG_PIXELS = 2
_OVERHANG_FRACTION = 0.2
#: Annotations that become arrays at a time; they stay in the cache.
_CHUNK = 1 << 10
_IDS = ('id', 'image_id', 'category_id')


def scan_annotations(
    annotations: list,
    images: dict,
    names: dict,
    wanted: set | None,
    report: CocoReport,
    found: Findings,
) -> dict[str, set]:
    """Check and count annotations.

    Args:
        annotations: The list of the file.
        images: (width, height) by image id.
        names: Class names by category id.
        wanted: Class names that are trained on; None: all.
        report: Gets the counts and the bad annotations.
        found: Gets the problems.

    Returns:
        Image ids with any annotation (``'any'``), and with one of a wanted class (``'wanted'``).
    """
    scan = _Scan(images, names, report, found)
    for start in range(0, len(annotations), _CHUNK):
        scan.add(start, annotations[start : start + _CHUNK])
    empty = scan.empty
    if empty and len(empty) <= TOLERATED_EMPTY_BOXES * len(annotations):
        found.by_kind['box of zero size'].is_error = False
    report.bad_annotations.update(empty)
    if scan.overhang > _OVERHANG_FRACTION * len(annotations):
        found.add(
            'boxes reach beyond the image',
            f'{scan.overhang} of {len(annotations)} boxes end more than '
            f'{_OVERHANG_PIXELS} pixels beyond the right or lower edge',
            is_error=False,
        )
    if not annotations:
        found.add('no annotation at all', "'annotations' is empty", is_error=False)
    return scan.finish(wanted)


class _Scan:
    """Checks chunks of annotations and counts the good ones.

    Args:
        images: (width, height) by image id.
        names: Class names by category id.
        report: Gets the bad annotations and the counts.
        found: Gets the problems.

    Attributes:
        empty: Positions of the boxes of zero size.
        overhang: Boxes that reach beyond their image.
    """

    def __init__(self, images: dict, names: dict, report: CocoReport, found: Findings) -> None:
        self.images, self.names = images, names
        self.report, self.found = report, found
        self.image_index = {key: i for i, key in enumerate(images)}
        self.class_index = {key: i for i, key in enumerate(names)}
        self.sizes = np.array(list(images.values()), dtype=float)
        self.sizes = self.sizes.reshape(-1, 2)
        # By class: small, medium, large, crowd.
        self.counts = np.zeros((len(names), 4), dtype=np.int64)
        # (2, n): the image and the class of each good annotation.
        self.pairs: list[np.ndarray] = []
        self.seen_ids: set = set()
        self.empty: list[int] = []
        self.overhang = 0

    def add(self, start: int, chunk: list) -> None:
        """Check and count some annotations.

        Args:
            start: Position of the first.
            chunk: The annotations.
        """
        try:
            ids, *values, good = self._arrays(chunk)
            fresh = set(ids)
            if len(fresh) < len(chunk) or not fresh.isdisjoint(self.seen_ids):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            chunk = [
                ann for index, ann in enumerate(chunk, start) if not self._diagnose(index, ann)
            ]
            if chunk:
                self._count(*self._arrays(chunk)[1:-1])
            return
        self.seen_ids |= fresh
        if not good.all():
            for i in np.flatnonzero(~good).tolist():
                self.seen_ids.discard(chunk[i]['id'])
                self._diagnose(start + i, chunk[i])
            values = [x[good] for x in values]
        self._count(*values)

    def finish(self, wanted: set | None) -> dict[str, set]:
        """Write the counts to the report.

        Args:
            wanted: Class names that are trained on; None: all.

        Returns:
            See :func:`scan_annotations`.
        """
        for name, counts in zip(self.names.values(), self.counts.tolist()):
            count = self.report.counts[name]
            count.small, count.medium, count.large, count.crowd = counts
        is_wanted = np.array(
            [wanted is None or x in wanted for x in self.names.values()], dtype=bool
        )
        pairs = np.concatenate([np.zeros((2, 0), np.int64), *self.pairs], 1)
        ids = list(self.images)
        every = np.unique(pairs[0])
        some = np.unique(pairs[0][is_wanted[pairs[1]]])
        return {'any': {ids[i] for i in every.tolist()}, 'wanted': {ids[i] for i in some.tolist()}}

    def _arrays(self, chunk: list) -> tuple:
        """Ids and values of a chunk, and which annotations are good.

        Raises:
            KeyError, TypeError, ValueError, OverflowError: If an annotation lacks a key, or has a
                value of the wrong type or an unknown
                id.
        """
        count = len(chunk)
        boxes = [ann['bbox'] for ann in chunk]
        if set(map(type, boxes)) != {list} or set(map(len, boxes)) != {4}:
            raise ValueError
        box = _floats(list(chain.from_iterable(boxes))).reshape(count, 4)
        area = _floats([ann['area'] for ann in chunk])
        crowd = np.array([ann['iscrowd'] for ann in chunk])
        if crowd.dtype.kind not in 'ifb' or crowd.ndim != 1:
            raise ValueError
        ids = [[ann[key] for ann in chunk] for key in _IDS]
        if not set(map(type, chain.from_iterable(ids))) <= {int, str}:
            raise ValueError
        image, label = (
            np.fromiter(map(index.__getitem__, own), np.int64, count)
            for index, own in zip((self.image_index, self.class_index), ids[1:])
        )
        x, y, w, h = box.T
        width, height = self.sizes[image].T
        good = (
            (np.abs(box) <= LARGEST_PIXEL).all(1)
            & (w > 0)
            & (h > 0)
            & (-w < x)
            & (x < width)
            & (-h < y)
            & (y < height)
            & (area > 0)
            & (area <= LARGEST_PIXEL**2)
            & ((crowd == 0) | (crowd == 1))
        )
        return ids[0], box, area, crowd, image, label, good

    def _count(
        self,
        box: np.ndarray,
        area: np.ndarray,
        crowd: np.ndarray,
        image: np.ndarray,
        label: np.ndarray,
    ) -> None:
        size = (area >= SMALL_AREA).astype(np.int64) + (area >= LARGE_AREA)
        size[crowd == 1] = 3
        self.counts += np.bincount(label * 4 + size, minlength=self.counts.size).reshape(-1, 4)
        self.pairs.append(np.stack([image, label]))
        beyond = box[:, :2] + box[:, 2:] > self.sizes[image] + _OVERHANG_PIXELS
        self.overhang += int(beyond.any(1).sum())

    def _diagnose(self, index: int, ann: object) -> set[str]:
        """Report what is wrong with one annotation; return the kinds."""
        kinds = _report(index, ann, self.images, self.names, self.seen_ids, self.found)
        if isinstance(ann, dict) and is_id(ann.get('id')):
            self.seen_ids.add(ann['id'])
        if kinds == {'box of zero size'}:
            self.empty.append(index)
        elif kinds:
            self.report.bad_annotations.add(index)
        return kinds


def _floats(values: list) -> np.ndarray:
    """(N,) float64 of numbers; NumPy itself would take '3' and True, too."""
    if not set(map(type, values)) <= {int, float}:
        raise ValueError
    return np.fromiter(values, float, len(values))


def _report(
    index: int, ann: object, images: dict, names: dict, seen_ids: set, found: Findings
) -> set[str]:
    where = f'annotations[{index}]'
    keys = (*_IDS, 'bbox', 'area', 'iscrowd')
    if lacks_keys(ann, where, keys, found):
        return {'missing key'}
    findings = [*_id_findings(ann, images, names, seen_ids), *_box_findings(ann, images)]
    if findings:
        where += f' (id {shown(ann["id"])}, image_id {shown(ann["image_id"])})'
    for kind, text in findings:
        found.add(kind, f'{where}: {text}')
    return {kind for kind, _ in findings}


def _id_findings(ann: dict, images: dict, names: dict, seen_ids: set) -> list[tuple[str, str]]:
    for key in _IDS:
        if not is_id(ann[key]):
            return [('malformed value', f'{key} is {shown(ann[key])}')]
    findings = []
    if ann['id'] in seen_ids:
        findings.append(('duplicate annotation id', 'this id occurs again'))
    if ann['image_id'] not in images:
        text = f'no image has the id {shown(ann["image_id"])}'
        findings.append(('unknown image id', text))
    if ann['category_id'] not in names:
        known = ', '.join(map(shown, list(names)[:10]))
        known += ', ...' if len(names) > 10 else ''
        text = f'category_id is {shown(ann["category_id"])}'
        findings.append(('unknown category id', f'{text}; the file has {known}'))
    return findings


def _box_findings(ann: dict, images: dict) -> list[tuple[str, str]]:
    box, area = ann['bbox'], ann['area']
    text = f'bbox is {shown(box)}'
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        return [('malformed value', text)]
    if not is_number(area):
        return [('malformed value', f'area is {shown(area)}')]
    if ann['iscrowd'] not in (0, 1):
        return [('malformed value', f'iscrowd is {shown(ann["iscrowd"])}')]
    if not all(abs(v) <= LARGEST_PIXEL for v in box):
        # isfinite would refuse the integer 10^400.
        if all(isinstance(v, int) or isfinite(v) for v in box):
            return [('box of impossible size', text)]
        return [('box with NaN or infinity', text)]
    x, y, w, h = box
    if w < 0 or h < 0:
        side = 'width' if w < 0 else 'height'
        text += f', its {side} is {min(w, h):g}'
        return [('box of negative size', text)]
    if w == 0 or h == 0:
        return [('box of zero size', f'{text}, {w:g} x {h:g} pixels')]
    key = ann['image_id'] if is_id(ann['image_id']) else None
    width, height = images.get(key, (inf, inf))
    if not (-w < x < width and -h < y < height):
        text += f', the image is {width} x {height}'
        return [('box outside the image', text)]
    text = f'area is {shown(area)}'
    if area > LARGEST_PIXEL**2:
        return [('box of impossible size', text)]
    return [] if area > 0 else [('area not positive', text)]
