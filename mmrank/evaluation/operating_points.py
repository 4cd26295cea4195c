"""Figures of detectors within a budget of false alarms, and the scores that reach them.

Boxes take objects as in COCO; one that takes none is a false alarm, a second box on an object, too.
Equal scores are taken together, and nothing is interpolated between two:

* ``recall@fp1``: the most recall with at most 1 false alarm an image, a point of FROC.
* ``recall@p0.9``: the most recall with a precision of at least 0.9.
* ``f1``: the best F1. ``recall``: the recall of all boxes.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mmrank.errors import UserError

#: Figures where none are named.
FIGURES = ('recall', 'recall@fp0.1', 'recall@fp1', 'recall@p0.9', 'f1')


class Matches(NamedTuple):
    """Matches of n boxes; crowds, and boxes that match them, are left out."""

    scores: np.ndarray
    is_right: np.ndarray
    found_ids: np.ndarray  # Ids of the boxes
    num_objects: int
    num_images: int


class FROC(NamedTuple):
    """What the boxes from a score on reach, by score, the best one first."""

    scores: np.ndarray
    recall: np.ndarray  # NaN without objects
    precision: np.ndarray
    f1: np.ndarray
    false_alarms: np.ndarray  # In an image, on average


def froc(matches: Matches) -> FROC:
    """The curve of some boxes; see the class."""
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
    found = re.fullmatch(r'(recall@fp|recall@p(?=0|1$))(\d*\.?\d+)|(recall|f1)', figure)
    if not found:
        what = f'figure {figure!r} is unknown'
        raise UserError(what, 'recall, f1, recall@fp1 (false alarms an image) or recall@p0.9')
    return found[1] or found[3], float(found[2] or 0)


def figures_of(matches: Matches, figures: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Value of each figure, NaN without objects, and the least score shown; infinity for none."""
    curve = froc(matches)
    found = {}
    for figure in figures:
        kind, limit = parse_figure(figure)
        value = curve.f1 if kind == 'f1' else curve.recall
        if kind == 'recall@fp':
            value = np.where(curve.false_alarms <= limit, value, 0)
        elif kind == 'recall@p':
            value = np.where(curve.precision >= limit, value, 0)
        if matches.num_objects and value.any():
            found[figure] = float(value.max()), float(curve.scores[value.argmax()])
        else:
            found[figure] = 0.0 if matches.num_objects else float('nan'), float('inf')
    return found


def thresholds_of(classes: Mapping[Any, Matches], figure: str) -> dict[Any, float]:
    """Score at which each class reaches a figure, infinity where it is 0 or has no objects."""
    return {key: figures_of(matches, [figure])[figure][1] for key, matches in classes.items()}


def figures_at(parts: Iterable[tuple[Matches, float]]) -> dict[str, float]:
    """Figures of all boxes from a score on; each part, such as a class, has its own score."""
    counts = []
    for matches, score in parts:
        is_right = matches.is_right[matches.scores >= score]
        counts.append((len(is_right), is_right.sum(), matches.num_objects))
    shown, hits, objects = map(int, np.sum(counts, axis=0))
    nan = float('nan')
    return dict(
        recall=hits / (objects or nan),
        precision=hits / (shown or nan),
        f1=2 * hits / (shown + objects or nan),
        false_alarms=(shown - hits) / (matches.num_images or nan),
    )


def pool(parts: Iterable[Matches]) -> Matches:
    """Matches of several classes together."""
    scores, is_right, found_ids, objects, images = zip(*parts)
    columns = map(np.concatenate, (scores, is_right, found_ids))
    return Matches(*columns, sum(objects), images[0])


def matches_by_class(evaluation: Any, iou: float = 0.5) -> dict[Any, Matches]:
    """Matches of each category at one IoU, over all sizes of objects.

    They are found by the overlaps of ``evaluation``, pycocotools' or faster-coco-eval's.
    """
    if not 0 < iou <= 1:
        raise UserError(f'an IoU of {iou} is not in (0, 1]', '0.5 for 50 %')
    params = evaluation.params
    images = {image_id: i for i, image_id in enumerate(params.imgIds)}
    # An image and a class of it are one number; those of a class follow each other.
    first_pairs = {cat_id: i * len(images) for i, cat_id in enumerate(params.catIds)}
    columns = []
    for index in (evaluation.cocoDt, evaluation.cocoGt):
        kept = [
            x
            for x in index.dataset.get('annotations', ())
            if x['image_id'] in images and x['category_id'] in first_pairs
        ]
        pairs = [first_pairs[x['category_id']] + images[x['image_id']] for x in kept]
        columns += [kept, np.array(pairs, dtype=int)]
    boxes, box_pairs, objects, object_pairs = columns
    scores = np.array([x['score'] for x in boxes], dtype=float)
    order = np.lexsort((-scores, box_pairs))
    place = np.arange(len(order)) - np.searchsorted(box_pairs[order], box_pairs[order])
    order = order[place < params.maxDets[-1]]
    crowd_order = np.argsort(object_pairs, kind='stable')
    crowds = np.array([bool(x.get('iscrowd')) for x in objects], dtype=bool)[crowd_order]
    object_pairs = object_pairs[crowd_order]
    overlaps = {
        first_pairs[cat_id] + images[image_id]: np.asarray(x)
        for (image_id, cat_id), x in evaluation.ious.items()
        if len(x)
    }
    kind = _match(overlaps, iou, box_pairs[order], object_pairs, crowds)
    order = order[kind < 2]
    box_pairs = box_pairs[order]
    object_pairs = object_pairs[~crowds]
    ids = np.array([x['id'] for x in boxes], dtype=int)[order]
    rows = scores[order], kind[kind < 2] == 1, ids
    parts = {}
    for cat_id, first in first_pairs.items():
        ends = [first, first + len(images)]
        number = int(np.diff(np.searchsorted(object_pairs, ends))[0])
        own = slice(*np.searchsorted(box_pairs, ends))
        parts[cat_id] = Matches(*(x[own] for x in rows), number, len(images))
    return parts


def _match(
    overlaps: Mapping[int, np.ndarray],
    iou: float,
    box_pairs: np.ndarray,
    object_pairs: np.ndarray,
    crowds: np.ndarray,
) -> np.ndarray:
    """1 for boxes that take an object, 2 for those on a crowd, else 0.

    ``overlaps`` are of the boxes and objects of a pair in the order in which they are given.
    """
    pairs = np.array([*overlaps], dtype=int)
    widths = np.array([x.shape[1] for x in overlaps.values()], dtype=int)
    ends = np.cumsum([0, *(x.size for x in overlaps.values())])
    values = np.concatenate([np.zeros(0), *(x.ravel() for x in overlaps.values())])
    near = np.flatnonzero(values >= min(iou, 1 - 1e-10))
    part = np.searchsorted(ends, near, side='right') - 1
    row, column = np.divmod(near - ends[part], widths[part])
    row += np.searchsorted(box_pairs, pairs)[part]
    column += np.searchsorted(object_pairs, pairs)[part]
    # Of equal overlaps pycocotools takes the last, and a crowd where nothing is left.
    order = np.lexsort((-column, -values[near], crowds[column], row))
    kind = [0] * len(box_pairs)
    taken = set()
    for box, one, is_crowd in zip(*(x[order].tolist() for x in (row, column, crowds[column]))):
        if kind[box] == 0 and one not in taken:
            kind[box] = 2 if is_crowd else 1
            if not is_crowd:
                taken.add(one)
    return np.array(kind, dtype=int)
