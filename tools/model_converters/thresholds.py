"""The scores to cut a detector at: chosen on validation boxes, kept in its file and on a card."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import load_checked, load_ground_truth, match_at
from mmrank.evaluation.operating_points import figures_at, figures_of, pool, thresholds_of
from mmrank.pictures.tables import write_table

_HEADER = ('class', 'threshold', 'objects', 'recall', 'precision', 'false alarms an image')


def add_threshold_options(parser: argparse.ArgumentParser) -> None:
    """Add the files that thresholds are chosen on, and by which figure."""
    parser.add_argument(
        '--thresholds',
        nargs=2,
        metavar=('VAL.json', 'VAL.bbox.json'),
        help='annotations and boxes of the validation split: choose a score for each class on them',
    )
    at = 'figure to choose them by, such as recall@fp1 or recall@p0.9 (default: f1)'
    parser.add_argument('--at', default=argparse.SUPPRESS, help=at)
    iou = 'overlap that finds an object (default: 0.5)'
    parser.add_argument('--iou', type=float, default=argparse.SUPPRESS, help=iou)


def thresholds_asked(args: argparse.Namespace) -> dict | None:
    """:func:`choose_thresholds` by the options; None where they name no files."""
    options = {name: getattr(args, name) for name in ('at', 'iou') if name in args}
    if args.thresholds:
        return choose_thresholds(*args.thresholds, **options)
    if options:
        what = f'--{next(iter(options))} chooses thresholds, and there is nothing to choose them on'
        raise UserError(what, '--thresholds VAL.json VAL.bbox.json as well')
    return None


def choose_thresholds(ann_file: str, predictions: str, at: str = 'f1', iou: float = 0.5) -> dict:
    """What a checkpoint keeps: the score of all classes together, of each, and a table of them."""
    truth = load_ground_truth(ann_file)
    classes = match_at(truth, load_checked(predictions, truth), iou)
    names = {cat_id: truth.cats[cat_id]['name'] for cat_id in classes}
    scores = thresholds_of(classes, at)
    every = pool(classes.values())
    score = figures_of(every, [at])[at][1]
    if not np.isfinite(score):
        what = f'no score of {predictions} reaches {at}, at IoU {iou:g}'
        raise UserError(what, 'a figure that is reached, such as --at f1, or a trained model')
    rows = []
    parts = [
        ('all classes, one threshold', score, [(every, score)]),
        ('all classes, each its own', '', [(classes[x], scores[x]) for x in classes]),
        *((names[x], scores[x], [(classes[x], scores[x])]) for x in classes),
    ]
    for name, shown, part in parts:
        found = figures_at(part)
        values = [found[key] for key in ('recall', 'precision', 'false_alarms')]
        figures = ['n/a' if np.isnan(x) else x for x in values]  # none to measure it on
        rows.append([name, shown, sum(x.num_objects for x, _ in part), *figures])
    by_name = {names[x]: scores[x] for x in classes}
    images = every.num_images
    return dict(figure=at, iou=iou, images=images, all=score, classes=by_name, table=rows)


def write_card(thresholds: Mapping, model: Path) -> Path:
    """Write ``<model>.md`` and ``.csv`` beside the file of a model; return the first."""
    note = (
        'Show a box whose score is at least the threshold of its class (inf: none). Chosen by '
        f'{thresholds["figure"]} at IoU {thresholds["iou"]:g} on {thresholds["images"]} validation '
        'images. The checkpoint has them as meta.thresholds.'
    )
    table = thresholds['table']
    title = f'Thresholds of {model.name}'
    return write_table(_HEADER, table, model.with_suffix(''), title, note, align='lrrrrr')[0]


def below(score: float) -> float:
    """The largest ``score_thr`` of float32 that keeps boxes of this score: mmdet drops equal."""
    return float(np.nextafter(np.float32(score), np.float32('-inf')))
