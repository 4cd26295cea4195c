"""Predicted boxes of a split, judged against its annotations."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pycocotools.coco import COCO
from torch import Tensor

from mmrank.calibration.calibration_file import Calibration
from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import (
    check_predictions,
    load_ground_truth,
    load_predictions,
    match_at,
    match_boxes,
)
from mmrank.pictures.pr_curves import PRCurves

from .splits import JudgedScores, SplitFigures, as_float32


@dataclass(frozen=True)
class BoxSplit:
    """Boxes of a detector and the objects of the images."""

    truth: COCO  # Annotations
    boxes: list[dict]  # Predictions in COCO's form
    judged: JudgedScores  # Their scores
    labels: Tensor  # (n,) int64 class of each box of ``boxes``
    scores: Tensor  # (n,) float32

    @classmethod
    def read(
        cls,
        predictions: str | os.PathLike,
        ann_file: str | os.PathLike | COCO,
        classes: Sequence[str] | None = None,
        iou: float = 0.5,
    ) -> 'BoxSplit':
        """Read the boxes of a split and judge them as COCO matches them."""
        truth = load_ground_truth(ann_file)
        if any('neg_category_ids' in x for x in truth.dataset['images']):
            raise UserError(
                'the annotations are of LVIS, where a box of a class that was not looked for is '
                'neither right nor wrong. Fix: calibrate on images that are annotated whole'
            )
        categories = truth.dataset.get('categories') or []
        if classes is not None:
            categories = [x for x in categories if x['name'] in set(classes)]
        names = tuple(x['name'] for x in categories)
        if classes is not None and names != tuple(classes):
            raise UserError(
                f'the model has the classes {", ".join(classes[:6])}, the annotations '
                f'{", ".join(names[:6]) or "none of them"}. Fix: pass annotations with the classes '
                'of the model, in its order'
            )
        cat_ids = [x['id'] for x in categories]
        boxes = load_predictions(predictions)
        check_predictions(boxes, truth.imgs, set(cat_ids))
        if not boxes:
            what = 'the predictions have no box: there is nothing to calibrate'
            fix = 'lower model.test_cfg.score_thr, or pass the predictions of a trained model'
            raise UserError(what, fix)
        place = {cat_id: i for i, cat_id in enumerate(cat_ids)}
        labels = np.array([place[box['category_id']] for box in boxes])
        scores = as_float32(np.array([box['score'] for box in boxes]), labels, 'boxes')

        matches = match_at(truth, boxes, iou)
        found = [matches[x] for x in cat_ids]
        places = torch.from_numpy(np.concatenate([x.found_ids for x in found]) - 1)
        counts = torch.tensor([len(x.scores) for x in found])
        is_right = torch.from_numpy(np.concatenate([x.is_right for x in found]))
        of_class = torch.arange(len(found)).repeat_interleave(counts)
        judged = JudgedScores('detection', names, scores[places], of_class, is_right)
        return cls(truth, boxes, judged, torch.from_numpy(labels), scores)

    def calibrated(self, calibration: Calibration) -> list[dict]:
        values = calibration.probabilities(self.scores, self.labels).tolist()
        return [{**box, 'score': value} for box, value in zip(self.boxes, values)]

    def figures(self, calibration: Calibration | None = None) -> SplitFigures:
        boxes = self.boxes if calibration is None else self.calibrated(calibration)
        evaluation = match_boxes(self.truth, boxes)
        ap = PRCurves.of(evaluation).by_class()
        return SplitFigures(
            np.array([ap[name] for name in self.judged.classes]),
            float(evaluation.stats[0]),
            (evaluation.stats, evaluation.eval['precision'], evaluation.eval['recall']),
        )

    def same_as(self, other: 'BoxSplit') -> bool:
        # Images by name and objects: files of two folders may share a name.
        first, second = (
            {
                (x.get('file_name', x['id']), tuple(sorted(tuple(y['bbox']) for y in objects)))
                for x in truth.dataset['images']
                if (objects := truth.imgToAnns.get(x['id']))
            }
            for truth in (self.truth, other.truth)
        )
        return not first.isdisjoint(second)
