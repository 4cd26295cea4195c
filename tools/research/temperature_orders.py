r"""Do rare classes get smaller temperatures? Over random class orders.

    python tools/research/temperature_orders.py \
        work_dirs/temperatures/*/classes_temperature.csv --out-dir work_dirs/orders

The files are what tools/analysis_tools/temperatures.py writes, one for each training, of different
order_seed: one training cannot tell the size of a class from what its images show. Written to the
out dir: orders.csv, every class of every training, and orders.png.
"""

import argparse
import sys
from pathlib import Path

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import show_user_errors
from mmrank.files import write_csv_atomically
from theory.temperature_orders import order_test, plot_orders, read_order_runs


def parse_args() -> argparse.Namespace:
    parser = tool_parser(
        __doc__, out_dir='work_dirs/temperature_orders', seed=(0, 'seed of the test')
    )
    parser.add_argument('tables', nargs='+', metavar='CSV', help='classes_*.csv files')
    return parser.parse_args()


@show_user_errors(OSError, ValueError)
def main() -> None:
    args = parse_args()
    runs = read_order_runs(args.tables)
    found = order_test(runs, seed=args.seed)
    out = Path(args.out_dir)
    lines = [['table', 'class', 'samples', 'mean', 'log_relative']]
    for table, *row in zip(args.tables, runs.counts, runs.temperatures, found.relative):
        for name, count, mean, rest in zip(runs.classes, *row):
            lines.append([table, name, int(count), f'{mean:.6g}', f'{rest:.6g}'])
    print(found)
    print(f'wrote {write_csv_atomically(lines, out / "orders.csv")}')
    print(f'wrote {plot_orders(runs, found, out / "orders.png")}')


if __name__ == '__main__':
    sys.exit(main())
