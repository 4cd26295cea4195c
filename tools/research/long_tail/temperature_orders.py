r"""Do rare classes get smaller temperatures? A randomisation test over orders of class sizes.

    python tools/research/long_tail/temperature_orders.py work_dirs/orders/*/classes_temperature.csv

The files are what tools/analysis_tools/temperatures.py writes, one for each training, of different
order_seed: one training cannot tell the size of a class from what its images show. Of the log of
the temperatures the means of each class and of each training are taken out, and the slope over the
log of class size is compared with the slopes of random orders.
"""

import csv
import sys
from typing import NamedTuple

import numpy as np

from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.pictures.temperatures import permuted_blocks

FIX = 'Fix: pass a classes_*.csv of tools/analysis_tools/temperatures.py'


class OrderTest(NamedTuple):
    """Result of :func:`order_test`."""

    slope: float  # Change of the log of the temperature for a factor ten of class size
    low: float  # 2.5 % quantile of it, if sizes did not matter
    high: float  # 97.5 % quantile
    p_value: float  # Two-sided


def order_test(
    counts: np.ndarray, temperatures: np.ndarray, draws: int = 20_000, seed: int = 0
) -> OrderTest:
    """Test class size against temperature, (trainings, classes) each; sizes are permuted."""
    sizes = np.log10(counts)
    relative = _centred(np.log(temperatures))
    spread = _centred(sizes)
    if not (spread**2).sum() > 1e-9:
        raise UserError(
            'all trainings have the same class sizes, so size and content of a class cannot be '
            'separated. Fix: pass trainings with different order_seed of the data set'
        )
    slope = float(_slopes(spread, relative))
    slopes = np.concatenate(
        [_slopes(_centred(dealt), relative) for dealt in permuted_blocks(sizes, draws, seed)]
    )
    # Rounding must not tell an order from one that equals it.
    as_extreme = int((np.abs(slopes) >= abs(slope) - 1e-12).sum())
    low, high = np.quantile(slopes, (0.025, 0.975))
    return OrderTest(slope, float(low), float(high), (as_extreme + 1) / (draws + 1))


def _centred(values: np.ndarray) -> np.ndarray:
    """(..., R, C) less the means of rows and columns."""
    values = values - values.mean(-1, keepdims=True)
    return values - values.mean(-2, keepdims=True)


def _slopes(spread: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Least squares over the last two axes; 0 where nothing varies."""
    squares = (spread**2).sum((-2, -1))
    products = (spread * relative).sum((-2, -1))
    return np.where(squares > 1e-9, products / np.maximum(squares, 1e-9), 0)


def read_classes(path: str) -> dict[str, tuple[int, float]]:
    """Samples and mean temperature of each class."""
    with open(path, newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    try:
        table = {row['class']: (int(row['samples']), float(row['mean'] or 'nan')) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f'{path} is not a table of classes: {error!r}. {FIX}') from error
    if not table:
        raise UserError(f'{path} has no class. {FIX}')
    for name, (count, mean) in table.items():
        if count < 1 or not 0 < mean < np.inf:
            raise UserError(
                f'{path}: class {name!r} has {count} visited samples and the mean temperature '
                f'{mean}. Fix: remove trainings that have not seen all classes'
            )
    return table


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(__doc__, seed=(0, 'seed of the test'))
    parser.add_argument('tables', nargs='+', metavar='CSV', help='classes_*.csv files')
    args = parser.parse_args()
    tables = [read_classes(path) for path in args.tables]
    classes = [*tables[0]]
    for path, table in zip(args.tables, tables):
        if {*table} != {*classes}:
            raise UserError(
                f'{path} has the classes {sorted(table)}, {args.tables[0]} has '
                f'{sorted(classes)}. Fix: pass trainings on the same classes'
            )
    numbers = np.array([[table[name] for name in classes] for table in tables])
    found = order_test(numbers[..., 0], numbers[..., 1], seed=args.seed)
    slope, low, high = (100 * np.expm1(x) for x in found[:3])
    print(
        f'{slope:+.1f} % temperature per ten-fold class size (p = {found.p_value:.2g}; by chance '
        f'{low:+.1f} to {high:+.1f}; {len(tables)} orders of {len(classes)} classes)'
    )


if __name__ == '__main__':
    sys.exit(main())
