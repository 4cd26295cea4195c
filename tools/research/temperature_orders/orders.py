"""Whether rare classes get smaller temperatures, over random class orders.

In one training the frequency of a class and what its images show cannot be separated. Where several
trainings draw at random which class is how rare, they
can: the draw itself is the null distribution.
"""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrank.visualization.temperatures.statistics import permuted_blocks

#: Of the randomisation test.
DRAWS = 20_000


@dataclass(frozen=True)
class OrderRuns:
    """Classes of trainings that differ in the order of class sizes.

    Attributes:
        classes: C names.
        counts: (R, C) samples of a class in a training.
        temperatures: (R, C) mean temperatures, > 0.
    """

    classes: tuple[str, ...]
    counts: np.ndarray
    temperatures: np.ndarray


@dataclass(frozen=True)
class OrderTest:
    """What :func:`order_test` finds.

    Attributes:
        slope: Change of the log of the temperature per factor ten of class size, with what is due
            to class and training taken out.
        chance: 2.5 and 97.5 % quantile of it, if sizes did not matter.
        p_value: Two-sided.
        relative: (R, C) log temperatures, less the mean of their class and of their training.
        draws: Number of random orders that were compared.
    """

    slope: float
    chance: tuple[float, float]
    p_value: float
    relative: np.ndarray
    draws: int

    def __str__(self) -> str:
        """As a text to print."""
        slope, low, high = (100 * np.expm1(x) for x in (self.slope, *self.chance))
        runs, classes = self.relative.shape
        return (
            f'{slope:+.1f} % temperature per ten-fold class size (p = {self.p_value:.2g}; by '
            f'chance {low:+.1f} to {high:+.1f}; {runs} orders of {classes} classes)'
        )


def read_order_runs(paths: Sequence[str | os.PathLike]) -> OrderRuns:
    """Read ``classes_*.csv`` of tools/analysis_tools/temperatures.py.

    Args:
        paths: One file for each training.

    Raises:
        ValueError: If a file is of another kind, lacks a class that others have, or has a class
            without a visited sample.
    """
    tables = [_read_classes(path) for path in paths]
    classes = tuple(tables[0])
    for path, table in zip(paths, tables):
        if set(table) != set(classes):
            raise ValueError(
                f'{path} has the classes {sorted(table)}, {paths[0]} has '
                f'{sorted(classes)}. Fix: pass trainings on the same classes'
            )
    numbers = np.array([[t[name] for name in classes] for t in tables])
    return OrderRuns(classes, numbers[..., 0], numbers[..., 1])


def order_test(runs: OrderRuns, draws: int = DRAWS, seed: int = 0) -> OrderTest:
    """Randomisation test of class size against temperature.

    The slope is least squares of log temperature on log10 of class size, with a constant for each
    class and each training. If sizes did not matter, the temperatures would be the same whatever
    the order, and any order was as
    likely: so sizes are permuted within each training. The p-value is
    exact for any number of classes and trainings, apart from the number of draws, if the orders
    were drawn at random.

    Args:
        runs: Of at least two trainings.
        draws: Number of random orders.
        seed: Of the draws.

    Raises:
        ValueError: If all trainings have the same class sizes, or there are less than two trainings
            or classes.
    """
    if min(runs.counts.shape) < 2:
        raise ValueError(
            'at least two trainings and two classes are needed, got '
            f'{runs.counts.shape[0]} and {runs.counts.shape[1]}'
        )
    sizes = np.log10(runs.counts)
    relative = _centred(np.log(runs.temperatures))
    spread = _centred(sizes)
    if not (spread**2).sum() > 1e-9:
        raise ValueError(
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
            count, mean = int(row['samples']), float(row['mean'] or 'nan')
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f'{path} is not a table of classes: {error!r}. {fix}') from error
        if count < 1 or not 0 < mean < np.inf:
            raise ValueError(
                f'{path}: class {row["class"]!r} has {count} visited samples and the mean '
                f'temperature {mean}. Fix: remove trainings that have not seen all classes'
            )
        table[row['class']] = (count, mean)
    if not table:
        raise ValueError(f'{path} has no class. {fix}')
    return table
