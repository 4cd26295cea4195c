"""COCO evaluation of a file of predicted boxes, without console noise."""

import contextlib
import io
import os

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.studies.coco.predictions import check_predictions, load_predictions

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


def load_ground_truth(
    ann_file: str | os.PathLike | COCO, coco_class: type = COCO
) -> COCO:
    """Read an annotation file, quietly.

    Args:
        ann_file: COCO JSON file; a ``COCO`` object is passed through.
        coco_class: Class of the index, pycocotools' or one that works like
            it.

    Returns:
        The indexed annotations.
    """
    if not isinstance(ann_file, str | os.PathLike):
        return ann_file
    with contextlib.redirect_stdout(io.StringIO()):
        return coco_class(str(ann_file))


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
        UserError: If predictions are malformed or belong to other
            images or categories.
    """
    truth = load_ground_truth(ground_truth)
    boxes = load_predictions(predictions)
    check_predictions(boxes, truth.imgs, truth.cats)
    return match_boxes(truth, boxes)


def match_boxes(
    truth: COCO, boxes: list[dict], eval_class: type = COCOeval
) -> COCOeval:
    """Evaluate checked boxes, quietly.

    Args:
        truth: Annotations, in the index class that ``eval_class`` takes.
        boxes: Checked predictions; keys are added to them.
        eval_class: ``COCOeval`` or one that works like it.

    Returns:
        As :func:`evaluate_boxes`.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        if boxes:
            found = truth.loadRes(boxes)
        else:
            # pycocotools cannot load an empty list.
            found = type(truth)()
            found.dataset = {**truth.dataset, 'annotations': []}
            found.createIndex()
        evaluation = eval_class(truth, found, 'bbox')
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
    # Some evaluators have more figures after COCO's twelve.
    stats = np.asarray(evaluation.stats)[: len(STAT_NAMES)]
    stats = np.where(stats < 0, np.nan, stats)
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
