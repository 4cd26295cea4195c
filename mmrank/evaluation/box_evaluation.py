"""COCO evaluation of a file of predicted boxes, without console noise.

Both COCO evaluators take a wrong file silently (a box of an unknown category is dropped, a negative
width scores zero), so a table would be made of nonsense. Here each of these is one error.
"""

import contextlib
import io
import json
import logging
import os
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.annotations.check import inspect_coco, read_checked
from mmrank.annotations.findings import is_number
from mmrank.errors import MissingFileError, UserError
from mmrank.evaluation.coco_index import (
    coco_index,
    number_objects,
    warn_of_equal_scores,
    warn_of_limit,
)
from mmrank.evaluation.lvis_numpy import require_lvis
from mmrank.evaluation.operating_points import Matches, matches_by_class, thresholds_of

_KEYS = ('image_id', 'category_id', 'bbox', 'score')
# Names of COCOeval.stats in its order, as papers print them.
_STAT_NAMES = ('mAP', 'AP50', 'AP75', 'APs', 'APm', 'APl')
_STAT_NAMES += ('AR1', 'AR10', 'AR100', 'ARs', 'ARm', 'ARl')
# Figures of LVISEval, and their names here.
_LVIS_FIGURES = ('AP', 'AP50', 'AP75', 'APs', 'APm', 'APl', 'APr', 'APc', 'APf', 'AR@300')
_LVIS_NAMES = ('mAP', *_LVIS_FIGURES[1:-1], 'AR300')


def load_predictions(predictions: str | os.PathLike | list[dict]) -> list[dict]:
    """Read a COCO results file (``CocoMetric``'s ``*.bbox.json``), or take its content.

    Each box is a dict with ``image_id``, ``category_id``, ``bbox`` [x, y, width, height] in pixels
    and ``score``.
    """
    where = 'predictions'
    if not isinstance(predictions, list):
        path = Path(predictions)
        where = f'prediction file {predictions}'
        if not path.is_file():
            fix = 'the *.bbox.json that CocoMetric writes with outfile_prefix=...'
            state = 'is a folder' if path.is_dir() else 'does not exist'
            raise MissingFileError(f'{where} {state}', fix)
        try:
            predictions = json.loads(path.read_text('utf-8'))
        except ValueError as error:  # bad UTF-8 and bad JSON
            what = f'{where} ({path.stat().st_size:,} bytes) is not JSON: {error}'
            raise UserError(what, 'run the evaluation that writes it again') from error
    if not isinstance(predictions, list) or not all(
        isinstance(box, dict) and box.keys() >= set(_KEYS) for box in predictions
    ):
        what = f'{where} must be a list of objects with the keys {", ".join(_KEYS)}'
        raise UserError(what, 'the *.bbox.json that CocoMetric writes, not the annotation file')
    return predictions


def check_predictions(
    boxes: list[dict], images: Mapping[int, dict], category_ids: Container[int]
) -> None:
    """Refuse boxes that are malformed or of others than these ``images``, by id, or categories."""
    for bad, what, fix in _faults(boxes, images, category_ids):
        if bad.any():
            first = int(bad.argmax())
            shown = ', '.join(f'{key} {boxes[first][key]!r}' for key in _KEYS)
            what = f'{bad.sum()} of the predictions {what}, the first at index {first}: {shown}'
            raise UserError(what, fix)
    warn_of_equal_scores((box['category_id'], box['score']) for box in boxes)


def _faults(
    boxes: list[dict], images: Mapping[int, dict], category_ids: Container[int]
) -> Iterator[tuple[np.ndarray, str, str]]:
    """Yield which boxes are wrong, (n,) bool, in what, and the fix; each holds for the next."""
    yield (
        np.array([box['image_id'] not in images for box in boxes], dtype=bool),
        'have an image_id that is not in the annotations',
        'pass the annotation file of the split that was predicted.',
    )
    yield (
        np.array([box['category_id'] not in category_ids for box in boxes], dtype=bool),
        'have a category_id that is not in the annotations',
        'pass the annotation file of the evaluation, and no labels that start at 0.',
    )
    numbers = np.array([_numbers(box) for box in boxes], dtype=float).reshape(-1, 5)
    corner = numbers[:, :2]
    size = numbers[:, 2:4]
    yield (
        ~np.isfinite(numbers).all(axis=1),
        'do not have four finite numbers as bbox and one as score',
        'write numbers, not texts; NaN comes from the model.',
    )
    yield (
        (size < 0).any(axis=1),
        'have a negative width or height',
        'bbox is [x, y, width, height], not two corners.',
    )
    yield (
        (numbers[:, :4] <= 1).all() & (size > 0).any(axis=1),
        'lie within one pixel, as fractions of an image do',
        'multiply by the width and height of the image.',
    )
    images_of = [images[box['image_id']] for box in boxes]
    ends = np.array([[x.get('width'), x.get('height')] for x in images_of], dtype=float)
    is_beyond = (corner + size > 1.1 * ends.reshape(-1, 2)).any(axis=1)
    # A second corner is never left of the first or above it; of every size that would be chance.
    yield (
        is_beyond & (size >= corner).all(),
        'reach beyond their images, as two corners taken for corner and size do',
        'bbox is [x, y, width, height].',
    )


def _numbers(box: dict) -> list[float]:
    """Corner, size and score; NaN for what is not a number, as NumPy reads texts as such."""
    values = [*box['bbox'], box['score']] if isinstance(box['bbox'], list) else []
    return values if len(values) == 5 and all(map(is_number, values)) else [np.nan] * 5


def load_ground_truth(ann_file: str | os.PathLike | COCO) -> COCO:
    """Check and index an annotation file, quietly; pass an index through."""
    if isinstance(ann_file, str | os.PathLike):
        return coco_index(read_checked(ann_file)[0])
    return ann_file


def evaluate_boxes(
    ground_truth: str | os.PathLike | COCO, predictions: str | os.PathLike | list[dict]
) -> COCOeval:
    """Match predictions to annotations as COCO does; returns a summarised ``COCOeval``.

    Its parameters are COCO's own: at most 1, 10 and 100 boxes an image.
    """
    truth = load_ground_truth(ground_truth)
    return match_boxes(truth, load_checked(predictions, truth))


def load_checked(predictions: str | os.PathLike | list[dict], truth: COCO) -> list[dict]:
    """The boxes of :func:`load_predictions`, of images and categories of the annotations."""
    boxes = load_predictions(predictions)
    check_predictions(boxes, truth.imgs, truth.cats)
    return boxes


def match_boxes(
    truth: COCO, boxes: list[dict], run: Callable[[COCOeval], None] | None = None
) -> COCOeval:
    """As :func:`evaluate_boxes` of checked boxes, or by what ``run`` does with the evaluation."""
    warn_of_limit(truth.dataset)
    objects = [dict(x) for x in truth.dataset['annotations']]  # pycocotools writes to them
    found = [dict(x, area=x['bbox'][2] * x['bbox'][3], iscrowd=0) for x in boxes]
    parts = [number_objects({**truth.dataset, 'annotations': x}) for x in (objects, found)]
    evaluation = COCOeval(*map(coco_index, parts), 'bbox')
    with contextlib.redirect_stdout(io.StringIO()):
        if run is not None:
            run(evaluation)
        else:
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
    evaluation.cocoGt = truth
    return evaluation


def match_at(truth: COCO, boxes: list[dict], iou: float) -> dict[int, Matches]:
    """Matches of checked boxes at one IoU by category, without the work for figures of COCO."""

    def match(evaluation: COCOeval) -> None:
        evaluation.params.iouThrs = np.array([iou])
        for key in ('areaRng', 'areaRngLbl'):
            setattr(evaluation.params, key, getattr(evaluation.params, key)[:1])
        evaluation.evaluate()

    return matches_by_class(match_boxes(truth, boxes, run=match), iou)


def evaluate_lvis(truth: COCO, predictions: str | os.PathLike | list[dict]) -> Any:
    """Evaluate boxes as mmdet's ``LVISMetric`` does, at most 300 an image; an ``LVISEval``."""
    lvis = require_lvis()
    inspect_coco(truth.dataset, 'of LVIS', federated=True).raise_if_bad()
    boxes = load_checked(predictions, truth)
    # lvis warns at each call that it takes the boxes as they are.
    logging.getLogger('lvis.results').setLevel(logging.ERROR)
    federated = lvis.LVIS.__new__(lvis.LVIS)  # its constructor reads a file
    federated.logger = logging.getLogger('lvis.lvis')
    federated.dataset = number_objects(truth.dataset)
    federated._create_index()
    evaluation = lvis.LVISEval(federated, lvis.LVISResults(federated, boxes), 'bbox')
    evaluation.run()
    return evaluation


def summary(evaluation: Any) -> dict[str, float]:
    """Figures of COCO or LVIS by name, in [0, 1]; NaN where there is no such object."""
    if hasattr(evaluation, 'lvis_gt'):
        figures = evaluation.get_results()
        names = dict(zip(_LVIS_FIGURES, _LVIS_NAMES))
        figures = {name: figures[key] for key, name in names.items()}
    else:
        figures = dict(zip(_STAT_NAMES, evaluation.stats))
    return {name: float(x) if x >= 0 else float('nan') for name, x in figures.items()}


def best_f1_thresholds(evaluation: COCOeval) -> dict[int, float]:
    """Score at which each class reaches its best F1 at IoU 0.5, as a threshold for drawing.

    A ranking loss fixes the order of scores, not their level, so that a fixed threshold is unfair.
    Returns the threshold by category id, infinity for a class of which no box is ever right.
    """
    return thresholds_of(matches_by_class(evaluation), 'f1')
