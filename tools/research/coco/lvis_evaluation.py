"""LVIS figures by the evaluator that mmdet's ``LVISMetric`` calls."""

import logging
import os
from typing import Any

from mmrank.errors import UserError
from mmrank.evaluation.lvis_numpy import require_lvis

# Names of LVISEval's figures and of our tables.
LVIS_NAMES = {
    'AP': 'mAP',
    'AP50': 'AP50',
    'AP75': 'AP75',
    'APs': 'APs',
    'APm': 'APm',
    'APl': 'APl',
    'APr': 'APr',
    'APc': 'APc',
    'APf': 'APf',
    'AR@300': 'AR300',
}


def evaluate_lvis(ann_file: str | os.PathLike, boxes: list[dict]) -> Any:
    """Evaluate checked boxes as ``LVISMetric`` does: at most 300 an image.

    Args:
        ann_file: LVIS annotation file.
        boxes: Checked predictions, see
            :mod:`mmrank.evaluation.box_evaluation`; left as they are.

    Returns:
        An ``LVISEval`` that has been evaluated, accumulated and summarised.

    Raises:
        UserError: If there are no boxes, or lvis is not installed.
    """
    lvis = require_lvis()
    if not boxes:
        raise UserError(
            'LVIS cannot evaluate an empty list of predictions. Fix: lower '
            "the detector's score threshold (test_cfg.score_thr)."
        )
    # lvis warns at each call that it takes the boxes as they are.
    logging.getLogger('lvis.results').setLevel(logging.ERROR)
    truth = lvis.LVIS(str(ann_file))
    found = lvis.LVISResults(truth, [dict(box) for box in boxes])
    evaluation = lvis.LVISEval(truth, found, 'bbox')
    evaluation.run()
    return evaluation


def lvis_summary(evaluation: Any) -> dict[str, float]:
    """LVIS's figures by name.

    Args:
        evaluation: A summarised ``LVISEval``.

    Returns:
        ``mAP``, ``AP50``, ... and ``APr``, ``APc``, ``APf`` of rare, common and frequent classes,
        in [0, 1]; NaN where there is no such object.
    """
    results = evaluation.get_results()
    return {
        name: float(results[key]) if results[key] >= 0 else float('nan')
        for key, name in LVIS_NAMES.items()
    }


def lvis_class_average_precision(evaluation: Any) -> dict[str, float]:
    """Average precision of each class.

    Args:
        evaluation: An accumulated ``LVISEval``.

    Returns:
        AP in [0, 1] by class name; NaN for a class without objects.
    """
    # (IoU, recall, class, area range): all areas.
    precision = evaluation.eval['precision'][:, :, :, 0]
    table = {}
    for index, cat_id in enumerate(evaluation.params.cat_ids):
        values = precision[:, :, index]
        values = values[values > -1]
        name = evaluation.lvis_gt.cats[cat_id]['name']
        table[name] = float(values.mean()) if values.size else float('nan')
    return table
