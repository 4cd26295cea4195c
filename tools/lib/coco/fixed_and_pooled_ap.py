"""AP-fixed and AP-pool of LVIS predictions.

LVIS's AP takes the best 300 boxes of an image, so the classes compete for places. Dave et al.,
arXiv 2102.01066, 2021, take the best 10,000 boxes of a class in the whole data set: AP-fixed
(section 4) is the mean of the classes' AP, AP-pool (section 5) the AP of one ranking of the boxes
of all classes. Boxes are matched and ignored as LVIS does (Gupta et al., CVPR 2019, section 3).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import nan
from operator import itemgetter

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lib.coco.box_evaluation import number_objects
from lib.coco.evaluators import index_quietly
from mmrank.datasets.lvis_annotations import INCOMPLETE, NEGATIVE, complete_lvis

PER_CLASS = 10_000
_ALL_AREAS = [0, 1e10]
_EVERY_BOX = 1 << 30


@dataclass(frozen=True)
class Matches:
    """Boxes of one class, or of several in one ranking."""

    scores: np.ndarray  # (D,) scores
    is_true: np.ndarray  # (T, D) bool, at each of T IoU thresholds
    is_false: np.ndarray  # (T, D) bool; a box that is neither is ignored
    num_objects: int  # Objects to be found

    @classmethod
    def joined(cls, parts: Iterable['Matches']) -> 'Matches':
        """One ranking of the boxes of several."""
        parts = list(parts)
        return cls(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.is_true for part in parts], axis=1),
            np.concatenate([part.is_false for part in parts], axis=1),
            sum(part.num_objects for part in parts),
        )

    def average_precision(self) -> float:
        """COCO's AP, the mean over 101 recalls and the IoU thresholds; NaN without objects."""
        if not self.num_objects:
            return nan
        order = np.argsort(-self.scores, kind='stable')
        # Threshold by threshold: the pool of LVIS has 10^7 boxes.
        sides = zip(self.is_true[:, order], self.is_false[:, order])
        return float(np.mean([_interpolated_precision(*x, self.num_objects) for x in sides]))


def _interpolated_precision(is_true: np.ndarray, is_false: np.ndarray, num_objects: int) -> float:
    """Mean precision at 101 recalls of (D,) boxes in descending order."""
    true, false = is_true.cumsum(), is_false.cumsum()
    precision = true / np.maximum(true + false, 1)
    # The best precision at this recall or a higher one; 0 beyond the last.
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    place = np.searchsorted(true / num_objects, np.linspace(0, 1, 101))
    return float(np.append(precision, 0.0)[place].mean())


def best_of_class(boxes: list[dict], per_class: int) -> list[dict]:
    """Copies of the ``per_class`` boxes of each class with the highest scores, by class."""
    boxes = sorted(boxes, key=lambda box: (box['category_id'], -box['score']))
    return [
        dict(box)
        for _, group in groupby(boxes, key=itemgetter('category_id'))
        for box, _ in zip(group, range(per_class))
    ]


def match_classes(document: dict, boxes: list[dict]) -> dict[int, Matches]:
    """Match boxes to objects by LVIS's rules."""
    complete_lvis(document)
    truth, found = COCO(), COCO()
    truth.dataset = document
    index_quietly(truth)
    for number, box in enumerate(boxes, 1):
        box.update(id=number, area=box['bbox'][2] * box['bbox'][3], iscrowd=0)
    found.dataset = {**document, 'annotations': boxes}
    evaluation = COCOeval(number_objects(truth), index_quietly(found), 'bbox')
    evaluation.params.maxDets = [_EVERY_BOX]
    evaluation._prepare()
    # Only where there is something: 1,203 classes x 20,000 images are many.
    places = {place for place, own in evaluation._gts.items() if own}
    absent = {i: set(image[NEGATIVE]) for i, image in truth.imgs.items()}
    partial = {i: set(image[INCOMPLETE]) for i, image in truth.imgs.items()}
    places |= {(image, kind) for image, kind in evaluation._dts if kind in absent[image]}
    parts: dict = {}
    for image, kind in sorted(places, key=itemgetter(1, 0)):
        evaluation.ious[image, kind] = evaluation.computeIoU(image, kind)
        one = evaluation.evaluateImg(image, kind, _ALL_AREAS, _EVERY_BOX)
        is_true = one['dtMatches'] > 0
        # Missing annotations: what matches nothing may be an object.
        is_false = ~is_true & (kind not in partial[image])
        counted = ~one['dtIgnore'].astype(bool)
        num_objects = int((np.asarray(one['gtIgnore']) == 0).sum())
        scores = np.array(one['dtScores'], dtype=float)
        parts.setdefault(kind, []).append(
            Matches(scores, is_true & counted, is_false & counted, num_objects)
        )
    return {kind: Matches.joined(own) for kind, own in parts.items()}


def fixed_and_pooled_ap(
    document: dict, boxes: list[dict], per_class: int = PER_CLASS
) -> dict[str, float]:
    """AP-fixed, of all and of rare, common and frequent classes, and AP-pool."""
    matches = match_classes(document, best_of_class(boxes, per_class))
    frequency = {c['id']: c.get('frequency') for c in document['categories']}
    fixed = {kind: own.average_precision() for kind, own in matches.items()}
    figures = {'AP-fixed': _mean(fixed.values())}
    for letter in 'rcf':
        own = [ap for kind, ap in fixed.items() if frequency[kind] == letter]
        figures[f'AP{letter}-fixed'] = _mean(own)
    pooled = Matches.joined(matches.values()) if matches else None
    figures['AP-pool'] = pooled.average_precision() if pooled else nan
    return figures


def describe_limit(boxes: Iterable[Mapping]) -> str | None:
    """A sentence if several images have the same largest number of boxes, as if cut off there."""
    _, counts = np.unique([b['image_id'] for b in boxes], return_counts=True)
    largest = counts.max(initial=0)
    reached = int((counts == largest).sum())
    if reached < 2 or largest < 100:
        return None
    return (
        f'{reached} images have {largest} boxes, a limit of the detector it seems: AP-fixed and '
        'AP-pool are meant for predictions without one (test_cfg.max_per_img), and are too low '
        'with it.'
    )


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if value == value]
    return float(np.mean(known)) if known else nan
