"""COCO figures of several detectors side by side: console, Markdown, CSV."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from pycocotools.cocoeval import COCOeval
from rich.table import Table

from mmrank.evaluation.box_evaluation import class_average_precision, summary
from mmrank.visualization.tables import write_table


def comparison_rows(models: Mapping[str, COCOeval]) -> tuple[list[str], list[list[str]]]:
    """Figures of each model in percent: COCO's twelve, then mAP per class.

    Args:
        models: Summarised evaluations by model name.

    Returns:
        The header and the rows, all text; ``n/a`` where no object has that size or class.
    """
    columns = []
    for evaluation in models.values():
        figures = summary(evaluation)
        classes = class_average_precision(evaluation)
        figures.update({f'mAP {name}': ap for name, ap in classes.items()})
        columns.append(figures)
    header = ['metric (%)', *models]
    rows = [[metric, *(_percent(figures[metric]) for figures in columns)] for metric in columns[0]]
    return header, rows


def _percent(value: float) -> str:
    return 'n/a' if math.isnan(value) else f'{100 * value:.1f}'


def rich_table(header: list[str], rows: list[list[str]], title: str) -> Table:
    """A table for the console; the best figure of a row is bold.

    Args:
        header: Column names, the metric first.
        rows: See :func:`comparison_rows`.
        title: Title of the table.

    Returns:
        The table.
    """
    table = Table(title=title)
    for index, name in enumerate(header):
        table.add_column(name, justify='right' if index else 'left')
    for metric, *values in rows:
        numbers = [v for v in values if v != 'n/a']
        best = max(numbers, key=float, default=None)
        cells = [f'[bold]{v}[/]' if v == best else v for v in values]
        table.add_row(metric, *cells)
        if metric == 'ARl':
            table.add_section()
    return table


def write_tables(
    header: list[str], rows: list[list[str]], folder: str | os.PathLike, title: str
) -> tuple[Path, Path]:
    """Write ``results.md`` and ``results.csv``.

    Args:
        header: Column names, the metric first.
        rows: See :func:`comparison_rows`.
        folder: Where to write; it is made if needed.
        title: Heading of the Markdown file.

    Returns:
        The Markdown and the CSV file.
    """
    return write_table(
        header, rows, Path(folder) / 'results', title, align='l' + 'r' * (len(header) - 1)
    )
