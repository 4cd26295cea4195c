"""The table of a COCO benchmark: Markdown, CSV and console."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from mmrank.files import write_atomically, write_csv_atomically
from mmrank.visualization.tables import best_cells, markdown_table
from research.common.run_record import RunRecord


@dataclass(frozen=True)
class BenchmarkRow:
    """One model of the table.

    Attributes:
        name: Name of the model.
        metrics: COCO's or LVIS's figures by name, in [0, 1]; NaN where no object has that size.
        classes: Average precision by class, likewise.
        record: What its run measured; None where that is not known.
    """

    name: str
    metrics: Mapping[str, float]
    classes: Mapping[str, float]
    record: RunRecord | None = None


@dataclass(frozen=True)
class _Column:
    """A column that comes from the record of a run."""

    title: str
    key: str
    value: Callable[[RunRecord], float | str | None]
    text: Callable[[float | str], str] = str


_TEXTS = (
    _Column('loss', 'loss', lambda r: r.loss),
    _Column('backbone', 'backbone', lambda r: r.backbone),
    _Column('test size', 'test_size', lambda r: r.test_size),
)
_NUMBERS = (
    _Column('img/s', 'images_per_second', lambda r: r.images_per_second, lambda v: f'{v:.1f}'),
    _Column(
        'img/s with data',
        'images_per_second_with_data',
        lambda r: r.images_per_second_with_data,
        lambda v: f'{v:.1f}',
    ),
    _Column(
        'memory (MiB)', 'memory_bytes', lambda r: r.memory_bytes, lambda v: f'{v / 2**20:,.0f}'
    ),
    _Column('parameters (M)', 'parameters', lambda r: r.parameters, lambda v: f'{v / 1e6:.2f}'),
)


def percent(value: float) -> str:
    """A share as a percentage with one decimal; ``n/a`` for NaN."""
    return 'n/a' if math.isnan(value) else f'{100 * value:.1f}'


def table_cells(
    rows: Sequence[BenchmarkRow],
) -> tuple[list[str], list[list[str]], list[list[bool]]]:
    """Text of the table, and which cells are the best of their column.

    Columns that no model has a value for are left out. The best AP and AR
    are marked; those that read the same are equally good. Speeds are not: on
    a shared machine a small difference means nothing.

    Args:
        rows: The models, all with the same metrics.

    Returns:
        The header, the cells and whether each is best, row by row.
    """
    records = [row.record for row in rows]
    columns = [('method', [row.name for row in rows], [False] * len(rows))]

    def add(title, values, text, marks_best=False) -> None:
        known = [v for v in values if v not in (None, '', '-')]
        if known:
            shown = ['-' if v is None else text(v) for v in values]
            marks = best_cells(shown, values) if marks_best else [False] * len(rows)
            columns.append((title, shown, marks))

    def of(column) -> list:
        return [None if r is None else column.value(r) for r in records]

    for column in _TEXTS:
        add(column.title, of(column), column.text)
    for name in rows[0].metrics:
        add(name, [row.metrics[name] for row in rows], percent, True)
    for column in _NUMBERS:
        add(column.title, of(column), column.text)
    header = [title for title, _, _ in columns]
    cells = [list(row) for row in zip(*(shown for _, shown, _ in columns))]
    best = [list(row) for row in zip(*(marks for _, _, marks in columns))]
    return header, cells, best


def class_cells(
    rows: Sequence[BenchmarkRow],
) -> tuple[list[str], list[list[str]], list[list[bool]]]:
    """Average precision of each class, as :func:`table_cells`.

    Args:
        rows: The models, all of the same classes.

    Returns:
        The header, one row a class, and whether each cell is best.
    """
    header = ['AP of class', *(row.name for row in rows)]
    cells, best = [], []
    for name in rows[0].classes:
        values = [row.classes[name] for row in rows]
        shown = [percent(value) for value in values]
        cells.append([name, *shown])
        best.append([False, *best_cells(shown, values)])
    return header, cells, best


def rich_benchmark(rows: Sequence[BenchmarkRow]) -> Table:
    """The table for the console, a model a column; the best is bold.

    Turned round because a console has room for a few models but not for seventeen columns.

    Args:
        rows: The models.

    Returns:
        The table.
    """
    header, cells, best = table_cells(rows)
    table = Table()
    table.add_column(header[0])
    for row in cells:
        table.add_column(escape(row[0]), justify='right')
    for index, name in enumerate(header[1:], 1):
        values = [
            f'[bold]{escape(row[index])}[/]' if marks[index] else escape(row[index])
            for row, marks in zip(cells, best)
        ]
        table.add_row(name, *values)
    return table


def describe_runs(rows: Sequence[BenchmarkRow]) -> list[str]:
    """Describe how speed and memory were measured, per model where needed.

    Args:
        rows: The models.

    Returns:
        A sentence for all, or for each group of models measured alike.
    """
    notes = {}
    for row in rows:
        if row.record is not None:
            r = row.record
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
    """Write ``coco_table.md``, ``coco_table.csv`` and ``classes.csv``.

    Markdown has percentages with one decimal, CSV the unrounded figures: AP and AR in [0, 1],
    bytes, images a second.

    Args:
        rows: The models, at least one.
        folder: Where to write; made if needed.
        title: Heading of the Markdown file.
        notes: Sentences below the first table, an item each.

    Returns:
        The three files.
    """
    folder = Path(folder)
    lines = [f'# {title}', '', *markdown_table(*table_cells(rows)), '']
    lines += [f'* {note}' for note in notes]
    lines += ['', '## Classes', '', *markdown_table(*class_cells(rows))]
    markdown = folder / 'coco_table.md'
    write_atomically(('\n'.join(lines) + '\n').encode(), markdown)

    columns = (*_TEXTS, *_NUMBERS)
    records = [
        [
            ''
            if row.record is None or column.value(row.record) is None
            else column.value(row.record)
            for column in columns
        ]
        for row in rows
    ]
    table = write_csv_atomically(
        [
            ['method', *rows[0].metrics, *(column.key for column in columns)],
            *([row.name, *row.metrics.values(), *values] for row, values in zip(rows, records)),
        ],
        folder / 'coco_table.csv',
    )
    classes = write_csv_atomically(
        [
            ['class', *(row.name for row in rows)],
            *([name, *(row.classes[name] for row in rows)] for name in rows[0].classes),
        ],
        folder / 'classes.csv',
    )
    return [markdown, table, classes]
