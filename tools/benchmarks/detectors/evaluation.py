"""Figures, curves and tables of several detectors on one annotation file, of COCO or LVIS."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pycocotools.coco import COCO
from rich.table import Table

from detectors.runs import ModelResult, RunRecord
from mmrank.apis.coco.box_evaluation import (
    check_predictions,
    load_predictions,
    match_boxes,
    summary,
)
from mmrank.apis.coco.pr_curves import PRCurves
from mmrank.apis.coco.tables import percent
from mmrank.apis.common.names import best_cells
from mmrank.apis.common.tables import console_table, markdown_table
from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.coco_reading import read_coco_json
from mmrank.datasets.lvis_annotations import is_lvis
from mmrank.errors import UserError
from mmrank.evaluation.coco_index import coco_index, fast_evaluator, number_objects
from mmrank.evaluation.lvis_numpy import require_lvis
from mmrank.files import write_atomically, write_csv_atomically

_HIDDEN_FIGURES = ('ARs', 'ARm', 'ARl')
# Figures of LVISEval and their names in our tables.
_LVIS_NAMES = {
    'AP': 'mAP',
    **{x: x for x in ('AP50', 'AP75', 'APs', 'APm', 'APl', 'APr', 'APc', 'APf')},
    'AR@300': 'AR300',
}


@dataclass(frozen=True)
class BenchmarkRow:
    """One model of the table: figures and class APs in [0, 1], NaN where there is no object."""

    name: str
    metrics: Mapping[str, float]
    classes: Mapping[str, float]
    record: RunRecord | None = None


@dataclass
class CocoBenchmark:
    """What the table and the picture are made of; curves by the name of the model."""

    num_images: int
    evaluator: str
    notes: list[str] = field(default_factory=list)
    rows: list[BenchmarkRow] = field(default_factory=list)
    curves: dict[str, PRCurves] = field(default_factory=dict)


def run_benchmark(
    results: Sequence[ModelResult],
    ann_file: Path,
    on_step: Callable[[str], None] = lambda text: None,
) -> CocoBenchmark:
    """Evaluate models on one annotation file."""
    on_step('reading annotations')
    document = read_coco_json(ann_file)
    is_federated = is_lvis(document)
    inspect_coco(document, ann_file, federated=is_federated).raise_if_bad()
    if is_federated:
        require_lvis()
    name = 'lvis' if is_federated else fast_evaluator()[0]
    benchmark = CocoBenchmark(len(document['images']), name)
    truth = coco_index(document)
    for result in results:
        on_step(f'{result.name}: {name}')
        boxes = _read_boxes(result, truth, benchmark.notes)
        if is_federated:
            evaluation = evaluate_lvis(document, boxes)
            figures = lvis_summary(evaluation)
        else:
            evaluation = match_boxes(truth, boxes, fast=True)
            figures = summary(evaluation)
            figures = {k: v for k, v in figures.items() if k not in _HIDDEN_FIGURES}
        curves = PRCurves.of(evaluation)
        benchmark.rows.append(BenchmarkRow(result.name, figures, curves.by_class(), result.record))
        benchmark.curves[result.name] = curves
    return benchmark


def _read_boxes(result: ModelResult, truth: COCO, notes: list[str]) -> list[dict]:
    """Checked predictions of a model; images without one are noted."""
    boxes = load_predictions(result.predictions)
    where = f'predictions of {result.name!r} ({result.predictions})'
    check_predictions(boxes, truth.imgs, truth.cats, where)
    if not boxes:
        raise UserError(
            f'there are no boxes in the {where}. Fix: lower test_cfg.score_thr of the detector'
        )
    shown = {box['image_id'] for box in boxes}
    bare = [image_id for image_id in truth.imgs if image_id not in shown]
    if bare:
        notes.append(
            f'{result.name}: {len(bare)} of {len(truth.imgs)} images have no prediction, for '
            f'example image_id {bare[0]}. Their objects count as missed. If these images were '
            'not tested, test the whole split.'
        )
    return boxes


def evaluate_lvis(document: dict, boxes: list[dict]) -> Any:
    """Evaluate checked boxes as mmdet's ``LVISMetric`` does: at most 300 an image."""
    lvis = require_lvis()
    # lvis warns at each call that it takes the boxes as they are.
    logging.getLogger('lvis.results').setLevel(logging.ERROR)
    truth = lvis.LVIS.__new__(lvis.LVIS)  # its constructor reads a file
    truth.logger = logging.getLogger('lvis.lvis')
    truth.dataset = number_objects(document)
    truth._create_index()
    found = lvis.LVISResults(truth, boxes)
    evaluation = lvis.LVISEval(truth, found, 'bbox')
    evaluation.run()
    return evaluation


def lvis_summary(evaluation: Any) -> dict[str, float]:
    """LVIS's figures by name, in [0, 1]; NaN where there is no such object."""
    results = evaluation.get_results()
    return {
        name: float(results[key]) if results[key] >= 0 else float('nan')
        for key, name in _LVIS_NAMES.items()
    }


# Columns from the record of a run: field, title, text of a value.
_MEASURED = (
    ('images_per_second', 'img/s', '{:.1f}'.format),
    ('images_per_second_with_data', 'img/s with data', '{:.1f}'.format),
    ('memory_bytes', 'memory (MiB)', lambda v: f'{v / 2**20:,.0f}'),
    ('parameters', 'parameters (M)', lambda v: f'{v / 1e6:.2f}'),
)
_Cells = tuple[list[str], list[list[str]], list[list[bool]]]


def table_cells(rows: Sequence[BenchmarkRow]) -> _Cells:
    """Header and text of the table, and which cells are the best of their column; no speeds."""
    columns = [('method', [row.name for row in rows], [False] * len(rows))]

    def add(title, values, text, marks_best=False) -> None:
        if any(v is not None for v in values):
            shown = ['-' if v is None else text(v) for v in values]
            marks = best_cells(shown, values) if marks_best else [False] * len(rows)
            columns.append((title, shown, marks))

    for name in rows[0].metrics:
        add(name, [row.metrics[name] for row in rows], percent, True)
    for key, title, text in _MEASURED:
        add(title, [getattr(row.record, key, None) for row in rows], text)
    titles, shown, marks = zip(*columns)
    return list(titles), [list(x) for x in zip(*shown)], [list(x) for x in zip(*marks)]


def _class_cells(rows: Sequence[BenchmarkRow]) -> _Cells:
    """Average precision of each class, as :func:`table_cells`."""
    header = ['AP of class', *(row.name for row in rows)]
    cells, best = [], []
    for name in rows[0].classes:
        values = [row.classes[name] for row in rows]
        shown = [percent(value) for value in values]
        cells.append([name, *shown])
        best.append([False, *best_cells(shown, values)])
    return header, cells, best


def rich_benchmark(rows: Sequence[BenchmarkRow]) -> Table:
    """The table for the console, a model a column, as seventeen columns have no room."""
    header, cells, best = table_cells(rows)
    columns = [[name, *own] for name, own in zip(header, zip(*cells))]
    marks = [[False, *own] for own in zip(*best)]
    return console_table(columns[0], columns[1:], marks[1:])


def describe_runs(rows: Sequence[BenchmarkRow]) -> list[str]:
    """Describe how speed and memory were measured, for each group of models measured alike."""
    notes = {}
    for row in rows:
        if r := row.record:
            text = (
                f'Speed: {r.device}, batches of {r.batch_size}, mean over {r.timed_images} images, '
                f'without loading images unless it says so. Memory: {r.memory_kind}.'
            )
            notes.setdefault(text, []).append(row.name)
    if len(notes) < 2:
        return list(notes)
    return [f'{", ".join(names)}: {text}' for text, names in notes.items()]


def write_benchmark(
    rows: Sequence[BenchmarkRow], folder: str | os.PathLike, title: str, notes: Sequence[str] = ()
) -> list[Path]:
    """Write ``coco_table.md`` (percent), ``coco_table.csv`` and ``classes.csv`` (unrounded)."""
    folder = Path(folder)
    lines = [f'# {title}', '', *markdown_table(*table_cells(rows)), '']
    lines += [f'* {note}' for note in notes]
    lines += ['', '## Classes', '', *markdown_table(*_class_cells(rows))]
    markdown = folder / 'coco_table.md'
    write_atomically(('\n'.join(lines) + '\n').encode(), markdown)

    keys = [key for key, *_ in _MEASURED]
    table = [['method', *rows[0].metrics, *keys]]
    for row in rows:
        values = [getattr(row.record, key, None) for key in keys]
        table.append([row.name, *row.metrics.values(), *('' if v is None else v for v in values)])
    classes = [['class', *(row.name for row in rows)]]
    classes += [[name, *(row.classes[name] for row in rows)] for name in rows[0].classes]
    return [
        markdown,
        write_csv_atomically(table, folder / 'coco_table.csv'),
        write_csv_atomically(classes, folder / 'classes.csv'),
    ]
