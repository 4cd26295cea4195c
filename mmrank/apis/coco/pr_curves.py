"""Precision-recall curves and bar charts of detectors, side by side."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from pycocotools.cocoeval import COCOeval

from mmrank.visualization.figures import new_grid, save, shorten
from mmrank.visualization.palette import colours_of, dash

_COLUMNS = 3
# Longer class names do not fit over a panel.
_LONGEST_NAME = 22
# With the three means a page has five rows.
_PER_PAGE = 12
_BAR_COLUMNS = 4
_LONGEST_MODEL = 24


@dataclass(frozen=True)
class PRCurves:
    """Interpolated precision of one detector, as COCO defines it."""

    # Precision in [0, 1], shape (IoU thresholds, recall thresholds, classes); NaN for classes
    # without objects
    precision: np.ndarray
    recall: np.ndarray  # Recall thresholds, shape (recall thresholds,)
    iou: np.ndarray  # IoU thresholds, shape (IoU thresholds,)
    classes: tuple[str, ...]  # Class names
    num_objects: tuple[int, ...]  # Ground-truth objects per class, crowds left out

    @classmethod
    def from_coco_eval(cls, evaluation: COCOeval) -> 'PRCurves':
        """Take an accumulated evaluation's curves over all object sizes and the most boxes."""
        precision = evaluation.eval['precision'][:, :, :, 0, -1]
        truth = evaluation.cocoGt
        params = evaluation.params
        return cls(
            precision=np.where(precision < 0, np.nan, precision),
            recall=np.asarray(params.recThrs),
            iou=np.asarray(params.iouThrs),
            classes=tuple(truth.cats[i]['name'] for i in params.catIds),
            num_objects=tuple(
                len(truth.getAnnIds(catIds=[i], iscrowd=False)) for i in params.catIds
            ),
        )

    @classmethod
    def from_lvis_eval(cls, evaluation: Any) -> 'PRCurves':
        """Take the curves of an accumulated ``LVISEval`` over all object sizes."""
        precision = evaluation.eval['precision'][:, :, :, 0]
        truth = evaluation.lvis_gt
        params = evaluation.params
        return cls(
            precision=np.where(precision < 0, np.nan, precision),
            recall=np.asarray(params.rec_thrs),
            iou=np.asarray(params.iou_thrs),
            classes=tuple(truth.cats[i]['name'] for i in params.cat_ids),
            # The map has one entry per object of the class.
            num_objects=tuple(len(truth.cat_img_map.get(i, ())) for i in params.cat_ids),
        )

    def curve(self, iou: float | None = None, name: str | None = None) -> np.ndarray:
        """Precision at ``recall``, of one IoU threshold and class, or averaged over those."""
        values = self.precision
        if name is not None:
            values = values[:, :, [self.index(name)]]
        if iou is not None:
            index = int(np.abs(self.iou - iou).argmin())
            if abs(self.iou[index] - iou) > 1e-6:
                raise ValueError(
                    f'no IoU threshold {iou}; they are {", ".join(f"{i:.2f}" for i in self.iou)}'
                )
            values = values[[index]]
        has_objects = ~np.isnan(values).all(axis=(0, 1))
        if not has_objects.any():
            return np.full(len(self.recall), np.nan)
        return values[:, :, has_objects].mean(axis=(0, 2))

    def index(self, name: str) -> int:
        """Position of a class; ValueError if there is none."""
        if name not in self.classes:
            raise ValueError(f'no class {name!r}; the classes are {", ".join(self.classes)}')
        return self.classes.index(name)

    def average_precision(self, iou: float | None = None, name: str | None = None) -> float:
        """Area under :meth:`curve` in [0, 1], COCO's AP."""
        return float(self.curve(iou, name).mean())

    def by_class(self) -> dict[str, float]:
        """COCO's AP of each class in [0, 1]; NaN for a class without objects."""
        return {name: self.average_precision(None, name) for name in self.classes}


def check_same_classes(models: Mapping[str, PRCurves]) -> PRCurves:
    """Return the first model's curves; ValueError if models have different classes."""
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


def plot_pr_curves(
    models: Mapping[str, PRCurves],
    path: str | os.PathLike,
    max_classes: int = 12,
    *,
    classes: Sequence[str] | None = None,
    with_mean: bool = True,
) -> Path:
    """Draw curves of several detectors: means over classes, then one class a panel at IoU 0.5."""
    first = check_same_classes(models)
    if classes is None:
        order = np.argsort([-n for n in first.num_objects], kind='stable')
        shown = [i for i in order if first.num_objects[i]][:max_classes]
    else:
        shown = [first.index(name) for name in classes]
    means = (('0.50', 0.5), ('0.75', 0.75), ('0.50 to 0.95', None)) if with_mean else ()
    panels = [(f'mean over classes, AP at IoU {text}', iou, None) for text, iou in means]
    for i in shown:
        name, count = shorten(first.classes[i], _LONGEST_NAME), first.num_objects[i]
        title = f'{name} ({count} {"object" if count == 1 else "objects"}), AP at IoU 0.50'
        panels.append((title, 0.5, first.classes[i]))
    if not panels:
        raise ValueError('plot_pr_curves requires classes or means')
    figure, axes = new_grid(len(panels), _COLUMNS, 3.4, 3.4)
    for axis, (title, iou, name) in zip(axes, panels):
        _draw_curves(axis, models, title, iou, name)
    handles, names = axes[0].get_legend_handles_labels()
    place = dict(loc='outside upper center', ncols=min(4, len(names)))
    figure.legend(handles, names, fontsize=9, frameon=False, **place)
    return save(figure, path, dpi=110)


def _draw_curves(
    axis: Axes, models: Mapping[str, PRCurves], title: str, iou: float | None, name: str | None
) -> None:
    """One panel: a curve per model, its AP above in the curve's colour."""
    colours = colours_of(list(models))
    for index, (model, curves) in enumerate(models.items()):
        style = dict(color=colours[index], linestyle=dash(index), linewidth=1.8)
        # A precision of 1 or 0 is not to be cut by the frame.
        axis.plot(curves.recall, curves.curve(iou, name), label=model, clip_on=False, **style)
        text = f'{100 * curves.average_precision(iou, name):.1f}'
        style = dict(color=colours[index], fontsize=9 if len(models) <= 6 else 6)
        x = (index + 1) / (len(models) + 1)
        axis.text(x, 1.02, text, transform=axis.transAxes, horizontalalignment='center', **style)
    axis.set(xlim=(0, 1), ylim=(0, 1.02), xlabel='recall', ylabel='precision')
    axis.set_title(title, fontsize=9, pad=18)


def most_differing_classes(models: Mapping[str, PRCurves], count: int) -> list[str]:
    """Choose classes by the range of AP50 times the square root of the number of objects."""
    first = check_same_classes(models)
    keys = []
    for name, objects in zip(first.classes, first.num_objects):
        if objects:
            ap = [curves.average_precision(0.5, name) for curves in models.values()]
            spread = round(float(np.ptp(ap)) * objects**0.5, 9)
            # A class may consist of ignored objects.
            if not np.isnan(spread):
                keys.append((-spread, -objects, name))
    return [name for _, _, name in sorted(keys)[:count]]


def plot_pr_pages(
    models: Mapping[str, PRCurves], folder: str | os.PathLike, classes: Sequence[str]
) -> list[Path]:
    """Draw ``pr_curves.png``, ``pr_curves_2.png``, ...: the means, twelve classes a page."""
    paths = []
    for start in range(0, max(1, len(classes)), _PER_PAGE):
        name = f'pr_curves_{start // _PER_PAGE + 1}.png' if start else 'pr_curves.png'
        shown = classes[start : start + _PER_PAGE]
        paths.append(
            plot_pr_curves(models, Path(folder) / name, classes=shown, with_mean=not start)
        )
    return paths


def plot_metric_bars(rows: Sequence, path: str | os.PathLike) -> Path:
    """Draw a panel for each metric (and measured speed, memory), in it a bar for each model."""
    panels = {f'{name} (%)': [100 * row.metrics[name] for row in rows] for name in rows[0].metrics}
    for title, key, scale in (
        ('images/s', 'images_per_second', 1),
        ('memory (MiB)', 'memory_bytes', 2**20),
    ):
        values = [getattr(row.record, key, None) for row in rows]
        panels[title] = [math.nan if v is None else v / scale for v in values]
    panels = {t: v for t, v in panels.items() if not all(map(math.isnan, v))}
    figure, axes = new_grid(len(panels), _BAR_COLUMNS, 3.0, 0.8 + 0.28 * len(rows))
    names = [shorten(row.name, _LONGEST_MODEL) for row in rows]
    colours = colours_of([row.name for row in rows])
    for index, (axis, (title, values)) in enumerate(zip(axes, panels.items())):
        _draw_bars(axis, title, values, colours)
        # Names once a row of panels.
        labels = [''] * len(names) if index % _BAR_COLUMNS else names
        axis.set_yticks(range(len(names)), labels, fontsize=8)
    return save(figure, path, dpi=110)


def _draw_bars(axis: Axes, title: str, values: list[float], colours: list[str]) -> None:
    """One metric: bars from the top, the figure behind each."""
    largest = max((v for v in values if not math.isnan(v)), default=0.0)
    for index, value in enumerate(values):
        length, text = (0.0, 'n/a') if math.isnan(value) else (value, f'{value:,.1f}')
        if value >= 1000:
            text = f'{value:,.0f}'
        axis.barh(index, length, height=0.7, color=colours[index])
        axis.text(length, index, f' {text}', fontsize=8, va='center')
    # Room for the figure behind the longest bar.
    axis.set(xlim=(0, 1.3 * largest or 1.0), ylim=(len(values) - 0.5, -0.5))
    axis.set_title(title, fontsize=9)
    axis.tick_params(axis='x', labelsize=7)
    axis.tick_params(axis='y', length=0)
    axis.grid(visible=False)
    axis.locator_params(axis='x', nbins=4)


def draw_benchmark(
    benchmark: Any, folder: str | os.PathLike, classes: Sequence[str] | None = None
) -> list[Path]:
    """Draw ``metrics.png`` and ``pr_curves.png`` with its further pages."""
    folder = Path(folder)
    curves = benchmark.curves
    if classes is None:
        classes = most_differing_classes(curves, 9)
    elif list(classes) == ['all']:
        classes = most_differing_classes(curves, len(benchmark.rows[0].classes))
    return [
        plot_metric_bars(benchmark.rows, folder / 'metrics.png'),
        *plot_pr_pages(curves, folder, classes),
    ]
