"""Tables of COCO's figures of several detectors."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from mmrank.apis.coco.box_evaluation import summary
from mmrank.apis.coco.pr_curves import PRCurves
from mmrank.apis.common.names import best_cells
from mmrank.apis.common.tables import console_table, write_table


def percent(value: float) -> str:
    """A share as a percentage with one decimal; ``n/a`` for NaN."""
    return 'n/a' if math.isnan(value) else f'{100 * value:.1f}'


def comparison_rows(models: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows in percent: figures of COCO or LVIS, mAP per class; a model a column."""
    columns = []
    for evaluation in models.values():
        classes = PRCurves.of(evaluation).by_class()
        columns.append(summary(evaluation) | {f'mAP {name}': ap for name, ap in classes.items()})
    rows = [[metric, *(percent(figures[metric]) for figures in columns)] for metric in columns[0]]
    return ['metric (%)', *models], rows


def show_comparison(
    models: Mapping[str, Any], stem: str | os.PathLike, title: str, console: Console
) -> tuple[Path, Path]:
    """Print :func:`comparison_rows`, the best of each bold; write ``<stem>.md`` and ``.csv``."""
    header, rows = comparison_rows(models)
    best = []
    for _, *shown in rows:
        values = [math.nan if text == 'n/a' else float(text) for text in shown]
        best.append([False, *best_cells(shown, values)])
    console.print(console_table(header, rows, best, title))
    align = 'l' + 'r' * (len(header) - 1)
    return write_table(header, rows, Path(stem), title, align=align)
