"""Score thresholds for drawing, chosen per class on labelled data.

A ranking loss fixes the order of scores and not their level, so a fixed threshold like 0.3 shows
everything of one model and nothing of another. The threshold at which F1 is best on a validation
split is fair to both.
"""

import numpy as np
from pycocotools.cocoeval import COCOeval

from mmrank.studies.coco.box_evaluation import ClassMatches, class_matches


def best_f1_thresholds(evaluation: COCOeval, iou: float = 0.5) -> dict[int, float]:
    """Score at which each class reaches its best F1.

    Args:
        evaluation: An evaluated ``COCOeval`` of boxes.
        iou: IoU from which a box counts as found; one of ``evaluation.params.iouThrs``.

    Returns:
        Threshold by category id: boxes with at least this score are shown. Infinity for a class of
        which no box is ever right.

    Raises:
        ValueError: If ``iou`` is not among the thresholds evaluated.
    """
    thresholds = np.asarray(evaluation.params.iouThrs)
    level = int(np.abs(thresholds - iou).argmin())
    if abs(thresholds[level] - iou) > 1e-6:
        raise ValueError(f'IoU {iou} was not evaluated; have {thresholds}')
    return {
        cat_id: _best_threshold(class_matches(evaluation, cat_id, level))
        for cat_id in evaluation.params.catIds
    }


def _best_threshold(matches: ClassMatches) -> float:
    if not matches.is_right.any():
        return float('inf')
    order = np.argsort(-matches.scores, kind='stable')
    hits = np.cumsum(matches.is_right[order])
    f1 = 2 * hits / (np.arange(1, len(hits) + 1) + matches.num_objects)
    # Equal scores are shown or hidden together: only the last counts.
    ranked = matches.scores[order]
    f1[:-1][ranked[:-1] == ranked[1:]] = -1
    return float(ranked[f1.argmax()])
