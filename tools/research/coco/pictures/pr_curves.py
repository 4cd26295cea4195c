"""Precision-recall curves of detectors, side by side in one figure."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pycocotools.cocoeval import COCOeval

from mmrank.visualization.figures import shorten
from mmrank.visualization.palette import colours_of, dash

_COLUMNS = 3
# Longer class names do not fit over a panel.
_LONGEST_NAME = 22


@dataclass(frozen=True)
class PRCurves:
    """Interpolated precision of one detector, as COCO defines it.

    Attributes:
        precision: Precision in [0, 1], shape (IoU thresholds, recall thresholds, classes); NaN for
            classes without objects.
        recall: Recall thresholds, shape (recall thresholds,).
        iou: IoU thresholds, shape (IoU thresholds,).
        classes: Class names.
        num_objects: Ground-truth objects per class, crowds left out.
    """

    precision: np.ndarray
    recall: np.ndarray
    iou: np.ndarray
    classes: tuple[str, ...]
    num_objects: tuple[int, ...]

    @classmethod
    def from_coco_eval(cls, evaluation: COCOeval) -> 'PRCurves':
        """Take the curves over all object sizes and the most boxes.

        Args:
            evaluation: An accumulated ``COCOeval`` of boxes.

        Returns:
            The curves.
        """
        precision = evaluation.eval['precision'][:, :, :, 0, -1]
        truth, cat_ids = evaluation.cocoGt, evaluation.params.catIds
        return cls(
            precision=np.where(precision < 0, np.nan, precision),
            recall=np.asarray(evaluation.params.recThrs),
            iou=np.asarray(evaluation.params.iouThrs),
            classes=tuple(truth.cats[i]['name'] for i in cat_ids),
            num_objects=tuple(len(truth.getAnnIds(catIds=[i], iscrowd=False)) for i in cat_ids),
        )

    @classmethod
    def from_lvis_eval(cls, evaluation: Any) -> 'PRCurves':
        """Take the curves over all object sizes.

        Args:
            evaluation: An accumulated ``LVISEval`` of boxes.

        Returns:
            The curves.
        """
        precision = evaluation.eval['precision'][:, :, :, 0]
        truth, cat_ids = evaluation.lvis_gt, evaluation.params.cat_ids
        return cls(
            precision=np.where(precision < 0, np.nan, precision),
            recall=np.asarray(evaluation.params.rec_thrs),
            iou=np.asarray(evaluation.params.iou_thrs),
            classes=tuple(truth.cats[i]['name'] for i in cat_ids),
            num_objects=tuple(
                # One entry per object of the class.
                len(truth.cat_img_map.get(i, ()))
                for i in cat_ids
            ),
        )

    def curve(self, iou: float | None = None, name: str | None = None) -> np.ndarray:
        """One curve.

        Args:
            iou: IoU threshold; None averages over all.
            name: Class; None averages over the classes that have objects.

        Returns:
            Precision at ``recall``, shape (recall thresholds,).

        Raises:
            ValueError: If there is no such threshold or class.
        """
        values = self.precision
        if name is not None:
            index = self.index(name)
            values = values[:, :, index : index + 1]
        if iou is not None:
            index = int(np.abs(self.iou - iou).argmin())
            if abs(self.iou[index] - iou) > 1e-6:
                raise ValueError(
                    f'no IoU threshold {iou}; they are {", ".join(f"{i:.2f}" for i in self.iou)}'
                )
            values = values[index : index + 1]
        has_objects = ~np.isnan(values).all(axis=(0, 1))
        if not has_objects.any():
            return np.full(len(self.recall), np.nan)
        return values[:, :, has_objects].mean(axis=(0, 2))

    def index(self, name: str) -> int:
        """Position of a class.

        Raises:
            ValueError: If there is no such class.
        """
        if name not in self.classes:
            raise ValueError(f'no class {name!r}; the classes are {", ".join(self.classes)}')
        return self.classes.index(name)

    def average_precision(self, iou: float | None = None, name: str | None = None) -> float:
        """Area under :meth:`curve` in [0, 1], COCO's AP."""
        return float(self.curve(iou, name).mean())


def plot_pr_curves(
    models: Mapping[str, PRCurves],
    path: str | os.PathLike,
    max_classes: int = 12,
    *,
    classes: Sequence[str] | None = None,
    with_mean: bool = True,
) -> Path:
    """Draw curves of several detectors over each other.

    The first panels show the mean over classes at IoU 0.5, 0.75 and over all thresholds, the others
    one class each at IoU 0.5, most frequent first.

    Args:
        models: Curves by model name; all of the same classes.
        path: Image file to write.
        max_classes: Class panels at most, where ``classes`` is None.
        classes: Classes to show, in this order.
        with_mean: Whether to show the means.

    Returns:
        ``path``.

    Raises:
        ValueError: If there is no model, they have different classes, or
            there is nothing to show.
    """
    first = check_same_classes(models)
    if classes is None:
        order = np.argsort([-n for n in first.num_objects], kind='stable')
        shown = [i for i in order if first.num_objects[i]][:max_classes]
    else:
        shown = [first.index(name) for name in classes]
    panels = [
        ('mean over classes, AP at IoU 0.50', 0.5, None),
        ('mean over classes, AP at IoU 0.75', 0.75, None),
        ('mean over classes, AP at IoU 0.50 to 0.95', None, None),
    ]
    panels = panels if with_mean else []
    panels += [(_title(first, i), 0.5, first.classes[i]) for i in shown]
    if not panels:
        raise ValueError('plot_pr_curves requires classes or means')
    rows = math.ceil(len(panels) / _COLUMNS)
    figure = Figure(
        figsize=(3.4 * _COLUMNS, 3.3 * rows + 0.25 * math.ceil(len(models) / 4)),
        layout='constrained',
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for axis, (title, iou, name) in zip(axes, panels):
        _draw_panel(axis, models, title, iou, name)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc='outside upper center',
        ncols=min(4, len(names)),
        fontsize=9,
        frameon=False,
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def check_same_classes(models: Mapping[str, PRCurves]) -> PRCurves:
    """Check that models can be drawn over each other.

    Args:
        models: Curves by model name.

    Returns:
        Those of the first model.

    Raises:
        ValueError: If there is no model, or they have different classes.
    """
    if not models:
        raise ValueError('plot_pr_curves requires curves of a model')
    first = next(iter(models.values()))
    for name, curves in models.items():
        if curves.classes != first.classes:
            raise ValueError(
                f'model {name!r} was evaluated on other classes than {next(iter(models))!r}: '
                f'{curves.classes} against {first.classes}'
            )
    return first


def _title(curves: PRCurves, index: int) -> str:
    name, count = curves.classes[index], curves.num_objects[index]
    name = shorten(name, _LONGEST_NAME)
    objects = 'object' if count == 1 else 'objects'
    return f'{name} ({count} {objects}), AP at IoU 0.50'


def _draw_panel(
    axis: Axes, models: Mapping[str, PRCurves], title: str, iou: float | None, name: str | None
) -> None:
    """One panel: a curve per model, its AP above in the curve's colour."""
    colours = colours_of(list(models))
    for index, (model, curves) in enumerate(models.items()):
        axis.plot(
            curves.recall,
            curves.curve(iou, name),
            color=colours[index],
            linestyle=dash(index),
            linewidth=1.8,
            label=model,
            # A precision of 1 or 0 is not to be cut by the frame.
            clip_on=False,
        )
        axis.text(
            (index + 1) / (len(models) + 1),
            1.02,
            f'{100 * curves.average_precision(iou, name):.1f}',
            transform=axis.transAxes,
            color=colours[index],
            horizontalalignment='center',
            fontsize=9 if len(models) <= 6 else 6,
        )
    axis.set(xlim=(0, 1), ylim=(0, 1.02), xlabel='recall', ylabel='precision')
    axis.set_title(title, fontsize=9, pad=18)
    axis.grid(alpha=0.3)
