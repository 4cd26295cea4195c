"""The table of a COCO benchmark as Markdown, CSV and for the console."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from detectors.evaluation import BenchmarkRow
from mmrank.apis.coco.tables import percent
from mmrank.apis.common.names import best_cells
from mmrank.apis.common.tables import console_table, markdown_table
from mmrank.files import write_atomically, write_csv_atomically

# Columns from the record of a run: field, title, text of a value.
_TEXTS = (('loss', 'loss', str), ('backbone', 'backbone', str), ('test_size', 'test size', str))
_NUMBERS = (
    ('images_per_second', 'img/s', '{:.1f}'.format),
    ('images_per_second_with_data', 'img/s with data', '{:.1f}'.format),
    ('memory_bytes', 'memory (MiB)', lambda v: f'{v / 2**20:,.0f}'),
    ('parameters', 'parameters (M)', lambda v: f'{v / 1e6:.2f}'),
)
Cells = tuple[list[str], list[list[str]], list[list[bool]]]


def table_cells(rows: Sequence[BenchmarkRow]) -> Cells:
    """Header and text of the table, and which cells are the best of their column; no speeds."""
    columns = [('method', [row.name for row in rows], [False] * len(rows))]

    def add(title, values, text, marks_best=False) -> None:
        if any(v not in (None, '', '-') for v in values):
            shown = ['-' if v is None else text(v) for v in values]
            marks = best_cells(shown, values) if marks_best else [False] * len(rows)
            columns.append((title, shown, marks))

    for key, title, text in _TEXTS:
        add(title, [getattr(row.record, key, None) for row in rows], text)
    for name in rows[0].metrics:
        add(name, [row.metrics[name] for row in rows], percent, True)
    for key, title, text in _NUMBERS:
        add(title, [getattr(row.record, key, None) for row in rows], text)
    titles, shown, marks = zip(*columns)
    return list(titles), [list(x) for x in zip(*shown)], [list(x) for x in zip(*marks)]


def class_cells(rows: Sequence[BenchmarkRow]) -> Cells:
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
    lines += ['', '## Classes', '', *markdown_table(*class_cells(rows))]
    markdown = folder / 'coco_table.md'
    write_atomically(('\n'.join(lines) + '\n').encode(), markdown)

    keys = [key for key, *_ in (*_TEXTS, *_NUMBERS)]
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
