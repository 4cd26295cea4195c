"""COCO's box evaluation by pycocotools or by faster-coco-eval.

Both return an object with the interface of ``COCOeval``, so that what reads its figures
(:mod:`mmrank.evaluation.box_evaluation`, the curves, the tables) does not care which it was.
"""

import contextlib
import io
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import STAT_NAMES, match_boxes

PYCOCOTOOLS, FASTER = 'pycocotools', 'faster-coco-eval'
CHOICES = ('auto', PYCOCOTOOLS, FASTER, 'both')


@dataclass(frozen=True)
class BoxEvaluator:
    """One implementation of COCO's box evaluation.

    Attributes:
        name: Its name, one of :data:`CHOICES`.
        coco_class: Its index of annotations.
        eval_class: Its evaluation.
    """

    name: str
    coco_class: type
    eval_class: type

    def load_truth(self, ann_file: str | os.PathLike) -> Any:
        """Read and index an annotation file.

        Args:
            ann_file: A COCO JSON file that has been checked.

        Returns:
            A ``coco_class``.
        """
        # Built from the document: pycocotools' constructor prints.
        truth = self.coco_class()
        truth.dataset = json.loads(Path(ann_file).read_text('utf-8'))
        return index_quietly(truth)

    def evaluate(self, truth: Any, boxes: list[dict]) -> tuple[Any, float]:
        """Evaluate checked predictions.

        Args:
            truth: From :meth:`load_truth` of this evaluator.
            boxes: Checked predictions; they are left as they are.

        Returns:
            The evaluation and the seconds that it took, from boxes in
            memory to COCO's figures.
        """
        boxes = [dict(box) for box in boxes]
        start = time.perf_counter()
        evaluation = match_boxes(truth, boxes, self.eval_class)
        return evaluation, time.perf_counter() - start


def index_quietly(truth: Any) -> Any:
    """Build the index of a ``COCO`` object that holds a document."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def find_evaluators(choice: str = 'auto') -> list[BoxEvaluator]:
    """Return the evaluators of a choice.

    Args:
        choice: ``'auto'`` is faster-coco-eval where it is installed, else pycocotools; ``'both'``
            is both, pycocotools first.

    Returns:
        One evaluator, or two.

    Raises:
        UserError: If the choice is unknown, or needs faster-coco-eval
            where it is not installed.
    """
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
    """Check that two evaluations have the same figures.

    Compared are COCO's twelve figures and the whole arrays behind them: precision at each recall
    and recall, of each IoU threshold, class, size
    and number of boxes.

    Args:
        reference: An accumulated ``COCOeval``.
        other: Another of the same annotations and predictions.
        where: What was evaluated, for the error.
        tolerance: Largest absolute difference allowed; figures are in
            [0, 1].

    Returns:
        The largest difference found.

    Raises:
        UserError: If one is larger; the text names the figure.
    """
    largest = 0.0
    for key in ('precision', 'recall'):
        one, two = (np.asarray(e.eval[key]) for e in (reference, other))
        if one.shape != two.shape:
            raise UserError(
                f'{where}: the evaluators disagree on the shape of {key}, {one.shape} against '
                f'{two.shape}. Fix: pass --evaluator pycocotools and report this file.'
            )
        gap = float(np.abs(one - two).max(initial=0.0))
        largest = max(largest, gap)
        if gap > tolerance:
            raise UserError(_disagreement(where, key, gap))
    for name, one, two in zip(STAT_NAMES, reference.stats, other.stats):
        gap = abs(float(one) - float(two))
        largest = max(largest, gap)
        if gap > tolerance:
            raise UserError(_disagreement(where, name, gap))
    return largest


def _disagreement(where: str, name: str, gap: float) -> str:
    return (
        f'{where}: the evaluators differ by {gap:.3g} in {name}. Fix: trust --evaluator '
        'pycocotools, the reference, and check the annotations with '
        'tools/dataset_converters/check_coco.py (an annotation id of 0 means "unmatched" to them).'
    )
