"""What a detector finds within a budget of false alarms, and the score from which it does.

A box takes, best score first, the object of its class that it overlaps most, as in COCO. A false
alarm is a box that takes none, a second box on an object, too; crowds do not count. Equal scores
are taken together, so a figure does not depend on the order of a file:

* ``recall@fp1``: the most recall with at most 1 false alarm an image, a point of FROC.
* ``recall@p0.9``: the most recall with a precision of at least 0.9.
* ``f1``: the best F1. ``recall``: the recall of all boxes.

Each is reached at a score, so it is never interpolated between two.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mmrank.errors import UserError

#: Figures of a metric that names none.
FIGURES = ('recall', 'recall@fp0.1', 'recall@fp1', 'recall@p0.9', 'f1')


class Matches(NamedTuple):
    """Matches of n boxes; crowds, and boxes that match them, are left out."""

    scores: np.ndarray
    is_right: np.ndarray
    found_ids: np.ndarray  # Ids of the boxes
    num_objects: int
    num_images: int


class FROC(NamedTuple):
    """What is reached where all boxes from a score on are shown, by score, the best one first."""

    scores: np.ndarray
    recall: np.ndarray
    precision: np.ndarray
    f1: np.ndarray
    false_alarms: np.ndarray  # In an image, on average


def froc(matches: Matches) -> FROC:
    """The curve, at each score of a box; its recall is NaN without objects."""
    order = np.argsort(-matches.scores, kind='stable')
    ranked = matches.scores[order]
    last = np.flatnonzero(np.diff(ranked, append=np.nan) != 0)
    shown = last + 1
    hits = np.cumsum(matches.is_right[order])[last]
    return FROC(
        ranked[last],
        hits / (matches.num_objects or np.nan),
        hits / shown,
        2 * hits / (shown + matches.num_objects),
        (shown - hits) / max(matches.num_images, 1),
    )


def parse_figure(figure: str) -> tuple[str, float]:
    """Kind and limit of a figure; a UserError if there is none of that name."""
    found = re.fullmatch(r'(recall@fp|recall@p)(\d+\.?\d*|\.\d+)|(recall|f1)', figure)
    if not found or (found[1] == 'recall@p' and float(found[2]) > 1):
        what = f'figure {figure!r} is unknown'
        raise UserError(what, 'recall, f1, recall@fp1 (false alarms an image), recall@p0.9')
    return found[1] or found[3], float(found[2] or 0)


def check_iou(iou: float) -> float:
    """The IoU; a UserError if it is none."""
    if not 0 < iou <= 1:
        raise UserError(f'figure_iou={iou} is not in (0, 1]', '0.5 for 50 %')
    return iou


def figures_of(matches: Matches, figures: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Value of each figure, and the score of the last box shown there; infinity to show none.

    The values are NaN without objects.
    """
    curve = froc(matches)
    found = {}
    for figure in figures:
        kind, limit = parse_figure(figure)
        value = curve.f1 if kind == 'f1' else curve.recall
        if kind == 'recall@fp':
            value = np.where(curve.false_alarms <= limit, value, 0)
        elif kind == 'recall@p':
            value = np.where(curve.precision >= limit, value, 0)
        if not matches.num_objects:
            found[figure] = float('nan'), float('inf')
        elif not value.any():
            found[figure] = 0.0, float('inf')
        else:
            found[figure] = float(value.max()), float(curve.scores[value.argmax()])
    return found


def figures_at(parts: Iterable[tuple[Matches, float]]) -> dict[str, float]:
    """Figures of all boxes from a score on; each part, such as a class, has its own score."""
    shown = hits = objects = images = 0
    for matches, score in parts:
        is_shown = matches.scores >= score
        shown += is_shown.sum()
        hits += matches.is_right[is_shown].sum()
        objects += matches.num_objects
        images = matches.num_images
    nan = float('nan')
    return dict(
        precision=float(hits / (shown or nan)),
        recall=float(hits / (objects or nan)),
        f1=float(2 * hits / ((shown + objects) or nan)),
        false_alarms=float((shown - hits) / (images or nan)),
    )


def pool(parts: Iterable[Matches]) -> Matches:
    """Matches of all classes together."""
    scores, is_right, found_ids, objects, images = zip(*parts)
    columns = map(np.concatenate, (scores, is_right, found_ids))
    return Matches(*columns, sum(objects), images[0])


def matches_by_class(evaluation: Any, iou: float = 0.5) -> dict[Any, Matches]:
    """Matches of each category at one IoU, over all sizes of objects.

    ``evaluation`` is pycocotools' or faster-coco-eval's, whose overlaps are taken as they are.
    """
    params = evaluation.params
    images = {image_id: i for i, image_id in enumerate(params.imgIds)}
    classes = {cat_id: i * len(images) for i, cat_id in enumerate(params.catIds)}
    # An image and a class of it are one number; those of a class follow each other.
    found, found_in = _columns(evaluation.cocoDt.dataset, images, classes)
    objects, objects_in = _columns(evaluation.cocoGt.dataset, images, classes)
    scores = np.array([x['score'] for x in found], dtype=float)
    order = np.lexsort((-scores, found_in))
    place = np.arange(len(order)) - np.searchsorted(found_in[order], found_in[order])
    order = order[place < params.maxDets[-1]]
    found_in = found_in[order]
    # The overlaps are those of the objects in the order of the file.
    object_order = np.argsort(objects_in, kind='stable')
    objects_in = objects_in[object_order]
    is_crowd = np.array([bool(x.get('iscrowd')) for x in objects], dtype=bool)[object_order]
    kind = _match(evaluation.ious, iou, images, classes, found_in, objects_in, is_crowd)
    is_counted = kind < 2
    order = order[is_counted]
    found_in = found_in[is_counted]
    ids = np.array([x['id'] for x in found], dtype=int)[order]
    columns = scores[order], kind[is_counted] == 1, ids
    objects_in = objects_in[~is_crowd]
    parts = {}
    for cat_id, first in classes.items():
        start, end = np.searchsorted(found_in, [first, first + len(images)])
        own = np.searchsorted(objects_in, [first, first + len(images)])
        number = int(own[1] - own[0])
        parts[cat_id] = Matches(*(x[start:end] for x in columns), number, len(images))
    return parts


def _columns(
    document: dict, images: Mapping[Any, int], classes: Mapping[Any, int]
) -> tuple[list[dict], np.ndarray]:
    """The boxes or objects of these images and classes, and the number of each of the pair."""
    kept = [
        x
        for x in document.get('annotations', ())
        if x['image_id'] in images and x['category_id'] in classes
    ]
    pairs = [classes[x['category_id']] + images[x['image_id']] for x in kept]
    return kept, np.array(pairs, dtype=int)


def _match(
    overlaps: Mapping[tuple, np.ndarray],
    iou: float,
    images: Mapping[Any, int],
    classes: Mapping[Any, int],
    found_in: np.ndarray,
    objects_in: np.ndarray,
    is_crowd: np.ndarray,
) -> np.ndarray:
    """0 for boxes that match nothing, 1 for those that take an object, 2 for those on a crowd."""
    used = {key: np.asarray(x) for key, x in overlaps.items() if len(x)}
    pairs = np.array([classes[c] + images[i] for i, c in used], dtype=int)
    rows = [np.zeros(0, int)]
    columns = [np.zeros(0, int)]
    values = [np.zeros(0)]
    starts = np.searchsorted(found_in, pairs).tolist(), np.searchsorted(objects_in, pairs).tolist()
    for own, first_row, first_column in zip(used.values(), *starts):
        row, column = np.nonzero(own >= min(iou, 1 - 1e-10))
        rows.append(row + first_row)
        columns.append(column + first_column)
        values.append(own[row, column])
    row, column, value = map(np.concatenate, (rows, columns, values))
    # Of objects with one overlap pycocotools takes the last, and a crowd where nothing is left.
    order = np.lexsort((-column, -value, is_crowd[column], row))
    kind = [0] * len(found_in)
    is_free = [True] * len(objects_in)
    crowds = is_crowd.tolist()
    for box, one in zip(row[order].tolist(), column[order].tolist()):
        if kind[box] == 0 and is_free[one]:
            kind[box] = 2 if crowds[one] else 1
            is_free[one] = crowds[one]
    return np.array(kind, dtype=int)
