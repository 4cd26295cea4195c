"""COCO's box evaluation by pycocotools or faster-coco-eval, and LVIS's by the package lvis.

The first two return an object with the interface of ``COCOeval``, so that what reads its figures
(:mod:`lib.coco.box_evaluation`, the curves, the tables) does not care which it was.
"""

import contextlib
import io
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lib.coco.box_evaluation import STAT_NAMES, NumberedIds, match_boxes, number_objects
from mmrank.errors import UserError
from mmrank.evaluation.lvis_numpy import require_lvis

PYCOCOTOOLS, FASTER = 'pycocotools', 'faster-coco-eval'
CHOICES = ('auto', PYCOCOTOOLS, FASTER, 'both')
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

    def evaluate(self, truth: Any, boxes: list[dict]) -> tuple[Any, float]:
        """Evaluate checked predictions, which are left as they are; also return the seconds."""
        boxes = [dict(box) for box in boxes]
        start = time.perf_counter()
        evaluation = match_boxes(truth, boxes, self.eval_class, coco_class=self.coco_class)
        return evaluation, time.perf_counter() - start


def index_quietly(truth: Any) -> Any:
    """Build the index of a ``COCO`` object that holds a document."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def find_evaluators(choice: str = 'auto') -> list[BoxEvaluator]:
    """One or two evaluators: ``'auto'`` prefers faster-coco-eval; pycocotools is first of both."""
    if choice not in CHOICES:
        raise UserError(f'evaluator {choice!r} is unknown. Fix: use one of {", ".join(CHOICES)}.')
    slow = BoxEvaluator(PYCOCOTOOLS, COCO, COCOeval)
    if choice == PYCOCOTOOLS:
        return [slow]
    try:
        from faster_coco_eval import COCO as FastCOCO
        from faster_coco_eval import COCOeval_faster
    except ImportError as error:
        if choice == 'auto':
            return [slow]
        raise UserError(
            f'evaluator {choice!r} requires the package faster-coco-eval, which cannot be imported '
            f'({error}). Fix: pip install faster-coco-eval, or choose {PYCOCOTOOLS!r}.'
        ) from error
    fast = BoxEvaluator(FASTER, FastCOCO, COCOeval_faster)
    return [slow, fast] if choice == 'both' else [fast]


def check_equality(reference: Any, other: Any, where: str, tolerance: float = 1e-6) -> float:
    """Check that all figures of two evaluations, and the arrays behind them, are the same."""
    gaps = {}
    for key in ('precision', 'recall'):
        one, two = (np.asarray(e.eval[key]) for e in (reference, other))
        if one.shape != two.shape:
            raise UserError(
                f'{where}: the evaluators disagree on the shape of {key}, {one.shape} against '
                f'{two.shape}. Fix: pass --evaluator pycocotools and report this file.'
            )
        gaps[key] = float(np.abs(one - two).max(initial=0.0))
    for name, one, two in zip(STAT_NAMES, reference.stats, other.stats):
        gaps[name] = abs(float(one) - float(two))
    for name, gap in gaps.items():
        if gap > tolerance:
            raise UserError(
                f'{where}: the evaluators differ by {gap:.3g} in {name}. Fix: trust --evaluator '
                'pycocotools, the reference, and check the annotations with '
                'tools/dataset_converters/check_coco.py (an annotation id of 0 means "unmatched" '
                'to them).'
            )
    return max(gaps.values())


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
