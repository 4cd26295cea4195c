"""COCO evaluation of a file of predicted boxes, without console noise."""

import contextlib
import copy
import io
import json
import os
from pathlib import Path

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

# Names of COCOeval.stats in its order, as papers print them.
STAT_NAMES = (
    'mAP',
    'AP50',
    'AP75',
    'APs',
    'APm',
    'APl',
    'AR1',
    'AR10',
    'AR100',
    'ARs',
    'ARm',
    'ARl',
)


def load_ground_truth(ann_file: str | os.PathLike | COCO) -> COCO:
    """Read an annotation file with pycocotools, quietly.

    Args:
        ann_file: COCO JSON file; a ``COCO`` object is passed through.

    Returns:
        The indexed annotations.
    """
    if isinstance(ann_file, COCO):
        return ann_file
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(ann_file))


def load_predictions(
    predictions: str | os.PathLike | list[dict],
) -> list[dict]:
    """Read a COCO results file (``CocoMetric``'s ``*.bbox.json``).

    Args:
        predictions: File, or its content: dicts with ``image_id``,
            ``category_id``, ``bbox`` [x, y, width, height] and ``score``.

    Returns:
        A list of dicts that the caller may change.

    Raises:
        ValueError: If the content is not a list of predictions.
    """
    where = 'predictions'
    if not isinstance(predictions, list):
        where = f'prediction file {predictions}'
        predictions = json.loads(Path(predictions).read_text('utf-8'))
    keys = ('image_id', 'category_id', 'bbox', 'score')
    is_list = isinstance(predictions, list)
    if not is_list or (predictions and not set(keys) <= set(predictions[0])):
        raise ValueError(
            f'{where} must be a list of objects with the keys '
            f'{", ".join(keys)}. Fix: give the *.bbox.json that CocoMetric '
            'writes with outfile_prefix=..., not the annotation file.'
        )
    return copy.deepcopy(predictions)


def evaluate_boxes(
    ground_truth: str | os.PathLike | COCO,
    predictions: str | os.PathLike | list[dict],
) -> COCOeval:
    """Match predictions to ground truth as COCO does.

    Args:
        ground_truth: Annotation file or ``COCO`` object.
        predictions: Results file or list; may be empty.

    Returns:
        A ``COCOeval`` that has been evaluated, accumulated and summarised
        with COCO's own parameters (at most 1, 10 and 100 boxes an image).

    Raises:
        ValueError: If predictions are malformed or belong to other images.
    """
    truth = load_ground_truth(ground_truth)
    boxes = load_predictions(predictions)
    strangers = {b['image_id'] for b in boxes} - set(truth.imgs)
    if strangers:
        raise ValueError(
            f'{len(strangers)} image_id of the predictions are not in the '
            f'annotations, for example {sorted(strangers)[:3]}. Fix: give the '
            'annotation file of the split that was predicted.'
        )
    with contextlib.redirect_stdout(io.StringIO()):
        if boxes:
            found = truth.loadRes(boxes)
        else:
            # pycocotools cannot load an empty list.
            found = COCO()
            found.dataset = {**truth.dataset, 'annotations': []}
            found.createIndex()
        evaluation = COCOeval(truth, found, 'bbox')
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def summary(evaluation: COCOeval) -> dict[str, float]:
    """COCO's twelve figures by name.

    Args:
        evaluation: A summarised ``COCOeval`` of boxes.

    Returns:
        ``mAP``, ``AP50``, ... in [0, 1]; NaN where no object has that size.
    """
    stats = np.where(evaluation.stats < 0, np.nan, evaluation.stats)
    return dict(zip(STAT_NAMES, stats.tolist()))


def class_average_precision(evaluation: COCOeval) -> dict[str, float]:
    """Average precision of each class.

    Args:
        evaluation: An accumulated ``COCOeval`` of boxes.

    Returns:
        AP averaged over IoU 0.5 to 0.95 by class name, in [0, 1]; NaN for a
        class without objects.
    """
    # (IoU, recall, class, area range, max boxes): all areas, most boxes.
    precision = evaluation.eval['precision'][:, :, :, 0, -1]
    table = {}
    for index, cat_id in enumerate(evaluation.params.catIds):
        values = precision[:, :, index]
        values = values[values > -1]
        name = evaluation.cocoGt.cats[cat_id]['name']
        table[name] = float(values.mean()) if values.size else float('nan')
    return table
