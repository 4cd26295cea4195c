"""Draw the box plot of a comparison over seeds again, from its runs.

    python tools/analysis_tools/plot_seeds.py work_dirs/bccd_losses/runs.csv \
        --scale 100 --out boxplot.png

A record is the runs.csv of tools/benchmarks/run_seeds.py, or one of tools/research/records.
"""

import argparse
import sys
from pathlib import Path

from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import benchmark_parser, check_outputs
from lib.seeds.plots import draw_box_plot, read_values


def parse_args() -> argparse.Namespace:
    parser = benchmark_parser(
        __doc__, scale=(1.0, '100 for percent'), out=('boxplot.png', 'PNG to write')
    )
    add = parser.add_argument
    add('runs', help='runs.csv')
    add('--metrics', nargs='+', default=(), help='default: all of the file')
    add('--lower-better', nargs='+', default=(), help='metrics of which less is better')
    add('--unit', choices=['seed', 'fold'], default='seed', help='what a dot is')
    return parser.parse_args()


@show_user_errors(OSError, ValueError, KeyError)
def main() -> None:
    args = parse_args()
    check_outputs(args, 'out')
    values = read_values(args.runs, args.metrics, args.scale)
    metrics = list(next(iter(values.values())))
    path = draw_box_plot(values, metrics, args.out, lower_better=args.lower_better, unit=args.unit)
    print(f'Wrote {path}')


if __name__ == '__main__':
    sys.exit(main())
