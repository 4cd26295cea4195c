"""The annotation file and the models that drawings of detectors take."""

import argparse

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.apis.coco.box_evaluation import evaluate_boxes, load_ground_truth


def add_predictions(parser: argparse.ArgumentParser, **more: str) -> None:
    """Add the positional arguments; ``more`` are help texts of others between them, by name."""
    for name, text in dict(ann_file='COCO annotation file', **more).items():
        parser.add_argument(name, help=text)
    parser.add_argument(
        'predictions', nargs='+', metavar='[NAME=]FILE', help='*.bbox.json of a model'
    )


def read_evaluations(args: argparse.Namespace) -> tuple[COCO, dict[str, COCOeval]]:
    """The annotations, and evaluations by the name of the model."""
    truth = load_ground_truth(args.ann_file)
    pairs = [word.rpartition('=') for word in args.predictions]
    return truth, {name or file: evaluate_boxes(truth, file) for name, _, file in pairs}
