"""COCO's box evaluation by pycocotools or faster-coco-eval, and LVIS's by the package lvis.

The first two return an object with the interface of ``COCOeval``, so that what reads its figures
(:mod:`mmrank.apis.coco.box_evaluation`, the curves, the tables) does not care which it was.
"""

import contextlib
import io
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.apis.coco.box_evaluation import NumberedIds, match_boxes, number_objects
from mmrank.errors import UserError
from mmrank.evaluation.lvis_numpy import require_lvis

# Figures of LVISEval and their names in our tables.
LVIS_NAMES = {
    'AP': 'mAP',
    **{x: x for x in ('AP50', 'AP75', 'APs', 'APm', 'APl', 'APr', 'APc', 'APf')},
    'AR@300': 'AR300',
}


@dataclass(frozen=True)
class BoxEvaluator:
    """One implementation of COCO's box evaluation: its index of annotations, its evaluation."""

    name: str
    coco_class: type
    eval_class: type

    def load_truth(self, ann_file: str | os.PathLike) -> Any:
        """Read and index a COCO JSON file that has been checked."""
        # Built from the document: pycocotools' constructor prints.
        document = json.loads(Path(ann_file).read_text('utf-8'))
        truth = COCO() if NumberedIds(document).are_lost else self.coco_class()
        truth.dataset = document
        return index_quietly(truth)

    def evaluate(self, truth: Any, boxes: list[dict]) -> Any:
        """Evaluate checked predictions, which are left as they are."""
        boxes = [dict(box) for box in boxes]
        return match_boxes(truth, boxes, self.eval_class, coco_class=self.coco_class)


#: The reference.
PYCOCOTOOLS = BoxEvaluator('pycocotools', COCO, COCOeval)


def index_quietly(truth: Any) -> Any:
    """Build the index of a ``COCO`` object that holds a document."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def find_evaluator() -> BoxEvaluator:
    """faster-coco-eval where it is installed, else pycocotools."""
    try:
        from faster_coco_eval import COCO as FastCOCO
        from faster_coco_eval import COCOeval_faster
    except ImportError:
        return PYCOCOTOOLS
    return BoxEvaluator('faster-coco-eval', FastCOCO, COCOeval_faster)


def evaluate_lvis(ann_file: str | os.PathLike, boxes: list[dict]) -> Any:
    """Evaluate checked boxes as mmdet's ``LVISMetric`` does: at most 300 an image."""
    lvis = require_lvis()
    if not boxes:
        raise UserError(
            "LVIS cannot evaluate an empty list of predictions. Fix: lower the detector's score "
            'threshold (test_cfg.score_thr).'
        )
    # lvis warns at each call that it takes the boxes as they are.
    logging.getLogger('lvis.results').setLevel(logging.ERROR)
    truth = number_objects(lvis.LVIS(str(ann_file)))
    found = lvis.LVISResults(truth, [dict(box) for box in boxes])
    evaluation = lvis.LVISEval(truth, found, 'bbox')
    evaluation.run()
    return evaluation


def lvis_summary(evaluation: Any) -> dict[str, float]:
    """LVIS's figures by name, in [0, 1]; NaN where there is no such object."""
    results = evaluation.get_results()
    return {
        name: float(results[key]) if results[key] >= 0 else float('nan')
        for key, name in LVIS_NAMES.items()
    }
