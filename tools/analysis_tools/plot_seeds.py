"""Draw the box plot of a comparison over seeds again, from its runs.

    python tools/analysis_tools/plot_seeds.py work_dirs/bccd_seeds/runs.csv \
        --scale 100 --out boxplot.png

runs.csv is what tools/benchmarks/run_seeds.py writes.

exit status: 0 drawn, 2 wrong input (see the message).
"""

import argparse
import sys
from pathlib import Path

from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.seeds.plots import draw_box_plot, read_values


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('runs', help='runs.csv')
    parser.add_argument('--metrics', nargs='+', default=(), help='default: all of the file')
    parser.add_argument(
        '--lower-better',
        nargs='+',
        default=(),
        metavar='METRIC',
        help='those of which less is better',
    )
    parser.add_argument(
        '--scale',
        type=float,
        default=1.0,
        help='factor of the values, 100 for percent (default: %(default)s)',
    )
    parser.add_argument(
        '--unit',
        choices=['seed', 'fold'],
        default='seed',
        help='what a dot is (default: %(default)s)',
    )
    parser.add_argument('--out', default='boxplot.png', help='PNG to write')
    return parser.parse_args()


@show_user_errors(OSError, ValueError, KeyError)
def main() -> None:
    """Read and draw."""
    args = parse_args()
    values = read_values(args.runs, args.metrics, args.scale)
    metrics = list(next(iter(values.values())))
    path = draw_box_plot(values, metrics, args.out, lower_better=args.lower_better, unit=args.unit)
    print(f'Wrote {path}')


if __name__ == '__main__':
    sys.exit(main())
