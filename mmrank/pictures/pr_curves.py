"""Precision-recall curves and figures of detectors, side by side."""

import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from mmrank.evaluation.box_evaluation import summary
from mmrank.pictures.figures import legend_above, new_grid, save, shorten
from mmrank.pictures.names import best_cells
from mmrank.pictures.palette import colour, dash
from mmrank.pictures.tables import console_table, write_table

_COLUMNS = 3
# Longer class names do not fit over a panel.
_LONGEST_NAME = 22
_MEANS = (('0.50', 0.5), ('0.75', 0.75), ('0.50 to 0.95', None))


class PRCurves(NamedTuple):
    """Interpolated precision of one detector, as COCO defines it."""

    # Precision in [0, 1], shape (IoU thresholds, recall thresholds, classes); NaN for classes
    # without objects
    precision: np.ndarray
    recall: np.ndarray  # Recall thresholds, shape (recall thresholds,)
    iou: np.ndarray  # IoU thresholds, shape (IoU thresholds,)
    classes: tuple[str, ...]  # Class names
    num_objects: tuple[int, ...]  # Ground-truth objects per class, crowds left out

    @classmethod
    def of(cls, evaluation: Any) -> 'PRCurves':
        """The curves of an accumulated ``COCOeval``, or ``LVISEval``, over all sizes of objects."""
        params = evaluation.params
        if hasattr(evaluation, 'lvis_gt'):
            truth = evaluation.lvis_gt
            cat_ids = params.cat_ids
            recall = params.rec_thrs
            iou = params.iou_thrs
            precision = evaluation.eval['precision'][:, :, :, 0]
        else:
            truth = evaluation.cocoGt
            cat_ids = params.catIds
            recall = params.recThrs
            iou = params.iouThrs
            # Of the most boxes.
            precision = evaluation.eval['precision'][:, :, :, 0, -1]
        objects = Counter(
            ann['category_id'] for ann in truth.anns.values() if not ann.get('iscrowd')
        )
        return cls(
            precision=np.where(precision < 0, np.nan, precision),
            recall=np.asarray(recall),
            iou=np.asarray(iou),
            classes=tuple(truth.cats[i]['name'] for i in cat_ids),
            num_objects=tuple(objects[i] for i in cat_ids),
        )

    def curve(self, iou: float | None = None, name: str | None = None) -> np.ndarray:
        """Precision at ``recall``, of one IoU threshold and class, or averaged over those."""
        values = self.precision
        if name is not None:
            values = values[:, :, [self.classes.index(name)]]
        if iou is not None:
            values = values[[int(np.abs(self.iou - iou).argmin())]]
        has_objects = ~np.isnan(values).all(axis=(0, 1))
        if not has_objects.any():
            return np.full(len(self.recall), np.nan)
        return values[:, :, has_objects].mean(axis=(0, 2))

    def average_precision(self, iou: float | None = None, name: str | None = None) -> float:
        """Area under :meth:`curve` in [0, 1], COCO's AP."""
        return float(self.curve(iou, name).mean())

    def by_class(self) -> dict[str, float]:
        """COCO's AP of each class in [0, 1]; NaN for a class without objects."""
        return {name: self.average_precision(None, name) for name in self.classes}


def plot_pr_curves(
    models: Mapping[str, PRCurves], path: str | os.PathLike, max_classes: int = 12
) -> Path:
    """Draw curves of several detectors: means over classes, then the most frequent classes."""
    first = next(iter(models.values()))
    order = np.argsort([-n for n in first.num_objects], kind='stable')
    shown = [i for i in order if first.num_objects[i]][:max_classes]
    panels = [(f'mean over classes, AP at IoU {text}', iou, None) for text, iou in _MEANS]
    for i in shown:
        name = shorten(first.classes[i], _LONGEST_NAME)
        count = first.num_objects[i]
        title = f'{name} ({count} {"object" if count == 1 else "objects"}), AP at IoU 0.50'
        panels.append((title, 0.5, first.classes[i]))
    figure, axes = new_grid(len(panels), _COLUMNS, 3.4, 3.4)
    for axis, (title, iou, name) in zip(axes, panels):
        for index, (model, curves) in enumerate(models.items()):
            style = dict(color=colour(index), linestyle=dash(index), linewidth=1.8)
            # A precision of 1 or 0 is not to be cut by the frame.
            axis.plot(curves.recall, curves.curve(iou, name), label=model, clip_on=False, **style)
            # The AP stands above, in the colour of the curve.
            text = f'{100 * curves.average_precision(iou, name):.1f}'
            style = dict(color=colour(index), fontsize=9 if len(models) <= 6 else 6)
            x = (index + 1) / (len(models) + 1)
            axis.text(x, 1.02, text, transform=axis.transAxes, ha='center', **style)
        axis.set(xlim=(0, 1), ylim=(0, 1.02), xlabel='recall', ylabel='precision')
        axis.set_title(title, fontsize=9, pad=18)
    legend_above(figure, axes[0], min(4, len(models)))
    return save(figure, path, dpi=110)


def comparison_rows(models: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows in percent: figures of COCO or LVIS, mAP per class; a model a column.

    ``n/a`` stands for NaN.
    """
    columns = []
    for evaluation in models.values():
        classes = PRCurves.of(evaluation).by_class()
        columns.append(summary(evaluation) | {f'mAP {name}': ap for name, ap in classes.items()})
    rows = []
    for metric in columns[0]:
        shown = [f'{100 * x[metric]:.1f}'.replace('nan', 'n/a') for x in columns]
        rows.append([metric, *shown])
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
