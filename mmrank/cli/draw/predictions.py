"""The annotation file and the models that drawings of detectors take."""

import argparse
from typing import Any

from pycocotools.coco import COCO

from mmrank.annotations.lvis import is_lvis
from mmrank.cli.options import named_paths
from mmrank.evaluation.box_evaluation import (
    evaluate_boxes,
    evaluate_lvis,
    load_ground_truth,
    load_predictions,
)


def add_predictions(parser: argparse.ArgumentParser, **more: str) -> None:
    """Add the positional arguments; ``more`` are help texts of others between them, by name."""
    for name, text in dict(ann_file='COCO annotation file', **more).items():
        parser.add_argument(name, help=text)
    parser.add_argument(
        'predictions', nargs='+', metavar='[NAME=]FILE', help='*.bbox.json of a model'
    )


def read_evaluations(
    args: argparse.Namespace, with_lvis: bool = False
) -> tuple[COCO, dict[str, Any]]:
    """The annotations, and evaluations by the name of the model, ``with_lvis`` of LVIS, too."""
    truth = load_ground_truth(args.ann_file)
    evaluate = evaluate_lvis if with_lvis and is_lvis(truth.dataset) else evaluate_boxes
    evaluations = {}
    for name, file in named_paths(args.predictions).items():
        boxes = load_predictions(file)
        evaluations[name] = evaluate(truth, boxes)
        missed = len(truth.imgs.keys() - {box['image_id'] for box in boxes})
        if missed:
            print(f'{name}: {missed} of {len(truth.imgs)} images have no prediction.')
    return truth, evaluations
