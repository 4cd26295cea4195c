"""Does the temperature of a class follow its size? A test over orders of class sizes."""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from mmrank.errors import UserError
from mmrank.visualization.figures import new_panels, save, shorten
from mmrank.visualization.palette import colour
from mmrank.visualization.temperatures import permuted_blocks

#: Of the randomisation test.
DRAWS = 20_000


@dataclass(frozen=True)
class OrderRuns:
    """Classes of trainings that differ in the order of class sizes."""

    classes: tuple[str, ...]  # C names
    counts: np.ndarray  # (R, C) samples of a class in a training
    temperatures: np.ndarray  # (R, C) mean temperatures, > 0


@dataclass(frozen=True)
class OrderTest:
    """Result of :func:`order_test`."""

    # Change of the log of the temperature per factor ten of class size, with what is due to class
    # and training taken out
    slope: float
    chance: tuple[float, float]  # 2.5 and 97.5 % quantile of it, if sizes did not matter
    p_value: float  # Two-sided
    # (R, C) log temperatures, less the mean of their class and of their training
    relative: np.ndarray
    draws: int  # Number of random orders that were compared

    def __str__(self) -> str:
        slope, low, high = (100 * np.expm1(x) for x in (self.slope, *self.chance))
        runs, classes = self.relative.shape
        return (
            f'{slope:+.1f} % temperature per ten-fold class size (p = {self.p_value:.2g}; by '
            f'chance {low:+.1f} to {high:+.1f}; {runs} orders of {classes} classes)'
        )


def read_order_runs(paths: Sequence[str | os.PathLike]) -> OrderRuns:
    """Read ``classes_*.csv`` of tools/analysis_tools/temperatures.py."""
    tables = [_read_classes(path) for path in paths]
    classes = tuple(tables[0])
    for path, table in zip(paths, tables):
        if set(table) != set(classes):
            raise UserError(
                f'{path} has the classes {sorted(table)}, {paths[0]} has '
                f'{sorted(classes)}. Fix: pass trainings on the same classes'
            )
    numbers = np.array([[t[name] for name in classes] for t in tables])
    return OrderRuns(classes, numbers[..., 0], numbers[..., 1])


def order_test(runs: OrderRuns, draws: int = DRAWS, seed: int = 0) -> OrderTest:
    """Randomisation test of class size against temperature; sizes are permuted in a training."""
    if min(runs.counts.shape) < 2:
        raise ValueError(
            'at least two trainings and two classes are needed, got '
            f'{runs.counts.shape[0]} and {runs.counts.shape[1]}'
        )
    sizes = np.log10(runs.counts)
    relative = _centred(np.log(runs.temperatures))
    spread = _centred(sizes)
    if not (spread**2).sum() > 1e-9:
        raise UserError(
            'all trainings have the same class sizes, so size and content of a class cannot be '
            'separated. Fix: pass trainings with different order_seed of the data set'
        )
    slope = _slopes(spread, relative)
    slopes = np.concatenate(
        [_slopes(_centred(dealt), relative) for dealt in permuted_blocks(sizes, draws, seed)]
    )
    # Rounding must not tell an order from one that equals it.
    as_extreme = int((np.abs(slopes) >= abs(slope) - 1e-12).sum())
    low, high = np.quantile(slopes, (0.025, 0.975))
    return OrderTest(
        float(slope), (float(low), float(high)), (as_extreme + 1) / (draws + 1), relative, draws
    )


def _centred(values: np.ndarray) -> np.ndarray:
    """(..., R, C) less the means of rows and columns."""
    values = values - values.mean(-1, keepdims=True)
    return values - values.mean(-2, keepdims=True)


def _slopes(spread: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Least squares over the last two axes; 0 where nothing varies."""
    squares = (spread**2).sum((-2, -1))
    products = (spread * relative).sum((-2, -1))
    return np.where(squares > 1e-9, products / np.maximum(squares, 1e-9), 0)


def _read_classes(path: str | os.PathLike) -> dict[str, tuple[float, float]]:
    fix = 'Fix: pass a classes_*.csv of tools/analysis_tools/temperatures.py'
    with open(path, newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    table = {}
    for row in rows:
        try:
            count = int(row['samples'])
            mean = float(row['mean'] or 'nan')
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f'{path} is not a table of classes: {error!r}. {fix}') from error
        if count < 1 or not 0 < mean < np.inf:
            raise UserError(
                f'{path}: class {row["class"]!r} has {count} visited samples and the mean '
                f'temperature {mean}. Fix: remove trainings that have not seen all classes'
            )
        table[row['class']] = (count, mean)
    if not table:
        raise UserError(f'{path} has no class. {fix}')
    return table


def plot_orders(runs: OrderRuns, found: OrderTest, path: str | os.PathLike) -> Path:
    """Plot temperature by class size (left, with 95 % intervals) and by class (right)."""
    figure, axes = new_panels(1, 2, width=4.6, height=3.6)
    by_size, by_class = axes[0]
    percent = 100 * np.expm1(found.relative)
    points = dict(linestyle='', marker='o', markersize=3, color='#999999', alpha=0.7)
    for axis in axes[0]:
        axis.axhline(0, color='black', linewidth=0.6)
    by_size.plot(runs.counts.ravel(), percent.ravel(), **points)
    # The k-th largest class of every training.
    order = np.argsort(-runs.counts, axis=1, kind='stable')
    sizes = np.take_along_axis(runs.counts, order, 1).mean(0)
    ranked = np.take_along_axis(percent, order, 1)
    number = len(ranked)
    interval = student.ppf(0.975, number - 1) * ranked.std(0, ddof=1) / np.sqrt(number)
    style = dict(linestyle='', marker='o', markersize=5, elinewidth=1.2, color=colour(1))
    label = f'mean of {number} trainings, 95 % interval'
    by_size.errorbar(sizes, ranked.mean(0), yerr=interval, label=label, **style)
    ends = np.array([runs.counts.min(), runs.counts.max()])
    middle = np.log10(runs.counts).mean()
    line = np.expm1(found.slope * (np.log10(ends) - middle))
    by_size.plot(ends, 100 * line, color=colour(0), label='least squares')
    if ends[0] * 3 < ends[1]:
        by_size.set_xscale('log')
    by_size.set(
        xlabel='samples of the class',
        ylabel='temperature over mean of its class, %',
        title=f'{100 * np.expm1(found.slope):+.1f} % per ten-fold size, p = {found.p_value:.2g}',
    )
    by_size.title.set_fontsize(9)
    by_size.legend(fontsize=7, frameon=False)

    logs = np.log(runs.temperatures)
    rows = 100 * np.expm1(logs - logs.mean(1, keepdims=True))
    means = rows.mean(0)
    hottest = np.argsort(-means)
    places = np.arange(len(means))
    for row in rows:
        by_class.plot(places, row[hottest], **points)
    by_class.plot(places, means[hottest], linestyle='', marker='_', markersize=14, color=colour(1))
    by_class.set(ylabel='temperature over mean of the training, %', title='what images show')
    by_class.title.set_fontsize(9)
    names = [shorten(runs.classes[i], 14) for i in hottest]
    by_class.set_xticks(places, names, rotation=60, ha='right', fontsize=7)
    return save(figure, path)
