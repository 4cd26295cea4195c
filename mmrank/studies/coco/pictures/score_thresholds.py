"""Score thresholds for drawing, chosen per class on labelled data.

A ranking loss fixes the order of scores and not their level, so a fixed
threshold like 0.3 shows everything of one model and nothing of another. The
threshold at which F1 is best on a validation split is fair to both.
"""

import numpy as np
from pycocotools.cocoeval import COCOeval


def best_f1_thresholds(
    evaluation: COCOeval, iou: float = 0.5
) -> dict[int, float]:
    """Score at which each class reaches its best F1.

    Args:
        evaluation: An evaluated ``COCOeval`` of boxes.
        iou: IoU from which a box counts as found; one of
            ``evaluation.params.iouThrs``.

    Returns:
        Threshold by category id: boxes with at least this score are shown.
        Infinity for a class of which no box is ever right.

    Raises:
        ValueError: If ``iou`` is not among the thresholds evaluated.
    """
    thresholds = np.asarray(evaluation.params.iouThrs)
    level = int(np.abs(thresholds - iou).argmin())
    if abs(thresholds[level] - iou) > 1e-6:
        raise ValueError(f'IoU {iou} was not evaluated; have {thresholds}')
    return {
        cat_id: _best_threshold(*_matches(evaluation, cat_id, level))
        for cat_id in evaluation.params.catIds
    }


def _matches(
    evaluation: COCOeval, cat_id: int, level: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Scores, whether each is right, and the number of objects."""
    scores, right, num_objects = [np.zeros(0)], [np.zeros(0, bool)], 0
    everything = list(evaluation.params.areaRng[0])
    for image in evaluation.evalImgs:
        if image is None or image['category_id'] != cat_id:
            continue
        if list(image['aRng']) != everything:
            continue
        kept = ~np.asarray(image['dtIgnore'][level], bool)
        scores.append(np.asarray(image['dtScores'])[kept])
        right.append(np.asarray(image['dtMatches'][level])[kept] > 0)
        num_objects += int((np.asarray(image['gtIgnore']) == 0).sum())
    return np.concatenate(scores), np.concatenate(right), num_objects


def _best_threshold(
    scores: np.ndarray, right: np.ndarray, num_objects: int
) -> float:
    if not right.any():
        return float('inf')
    order = np.argsort(-scores, kind='stable')
    hits = np.cumsum(right[order])
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + num_objects)
    # Equal scores are shown or hidden together: only the last counts.
    ranked = scores[order]
    f1[:-1][ranked[:-1] == ranked[1:]] = -1
    return float(ranked[f1.argmax()])
