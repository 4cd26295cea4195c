"""COCO evaluation of a file of predicted boxes, without console noise."""

import contextlib
import io
import os
from dataclasses import dataclass

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


def load_ground_truth(ann_file: str | os.PathLike | COCO, coco_class: type = COCO) -> COCO:
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
    ground_truth: str | os.PathLike | COCO, predictions: str | os.PathLike | list[dict]
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


def match_boxes(truth: COCO, boxes: list[dict], eval_class: type = COCOeval) -> COCOeval:
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
        AP averaged over IoU 0.5 to 0.95 by class name, in [0, 1]; NaN for a class without objects.
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


@dataclass(frozen=True)
class ClassMatches:
    """How the boxes of one class fared, crowds and what they cover left out.

    Attributes:
        scores: (n,) scores, image by image.
        is_right: (n,) bool: whether each box matches an object.
        found_ids: (n,) ids of the boxes, from 1 in the order of the file.
        object_ids: (n,) ids of the objects that they match; 0 for none.
        num_objects: Objects of the class.
    """

    scores: np.ndarray
    is_right: np.ndarray
    found_ids: np.ndarray
    object_ids: np.ndarray
    num_objects: int

    def ious(self, evaluation: COCOeval) -> np.ndarray:
        """IoU of each box with the object that it matches.

        Args:
            evaluation: What the matches were taken from.

        Returns:
            (n,) float64; 0 for a box that matches none.
        """
        found, objects = evaluation.cocoDt.anns, evaluation.cocoGt.anns
        pairs = [
            (found[one]['bbox'], objects[other]['bbox'])
            for one, other in zip(self.found_ids, self.object_ids)
            if other
        ]
        ious = np.zeros(len(self.scores))
        if pairs:
            ious[self.is_right] = paired_iou(*np.array(pairs).swapaxes(0, 1))
        return ious


def paired_iou(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """IoU of boxes with boxes, the first with the first and so on.

    Args:
        one: (n, 4) x, y, width and height.
        other: Likewise.

    Returns:
        (n,) in [0, 1]; 0 where both boxes are empty.
    """
    one, other = np.asarray(one, float), np.asarray(other, float)
    top = np.maximum(one[:, :2], other[:, :2])
    end = np.minimum(one[:, :2] + one[:, 2:], other[:, :2] + other[:, 2:])
    both = (end - top).clip(min=0).prod(axis=1)
    either = one[:, 2:].prod(axis=1) + other[:, 2:].prod(axis=1) - both
    return np.where(either > 0, both / np.where(either > 0, either, 1), 0.0)


def class_matches(evaluation: COCOeval, cat_id: int, level: int) -> ClassMatches:
    """Take the matches of one class over all sizes of objects.

    Args:
        evaluation: An evaluated ``COCOeval`` of boxes.
        cat_id: Category.
        level: Index of the IoU threshold.

    Returns:
        The matches.
    """
    parts = [(np.zeros(0), np.zeros(0), np.zeros(0, int), np.zeros(0, int))]
    num_objects = 0
    everything = list(evaluation.params.areaRng[0])
    for image in evaluation.evalImgs:
        if image is None or image['category_id'] != cat_id:
            continue
        if list(image['aRng']) != everything:
            continue
        kept = ~np.asarray(image['dtIgnore'][level], bool)
        objects = np.asarray(image['dtMatches'][level])[kept]
        parts.append(
            (
                np.asarray(image['dtScores'], float)[kept],
                objects > 0,
                np.asarray(image['dtIds'], int)[kept],
                objects.astype(int),
            )
        )
        num_objects += int((np.asarray(image['gtIgnore']) == 0).sum())
    scores, is_right, found, objects = map(np.concatenate, zip(*parts))
    return ClassMatches(scores, is_right.astype(bool), found, objects, num_objects)


def judge_boxes(truth: COCO, boxes: list[dict], iou: float) -> COCOeval:
    """Match checked boxes to objects at one IoU, without figures.

    Args:
        truth: Annotations.
        boxes: Checked predictions; keys are added to them.
        iou: IoU from which a box counts as found.

    Returns:
        A ``COCOeval`` that has been evaluated at this threshold, at most 100 boxes of a class in an
        image.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(truth, truth.loadRes(boxes), 'bbox')
        evaluation.params.iouThrs = np.array([iou])
        evaluation.params.areaRng = evaluation.params.areaRng[:1]
        evaluation.params.areaRngLbl = evaluation.params.areaRngLbl[:1]
        evaluation.evaluate()
    return evaluation
