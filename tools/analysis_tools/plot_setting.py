"""Plot a metric over the values of one setting, mean and std over seeds.

    python tools/analysis_tools/plot_setting.py \
        work_dirs/long_tail_rate/runs.csv --metric ranking/AP \
        --setting "positives in a batch" --out positive_rate.png

runs.csv is what tools/benchmarks/run_seeds.py writes for a plan whose methods
are named <method>-<value>, as configs/long_tail/positive_rate.yaml.
"""

import argparse
import sys
from pathlib import Path

from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import benchmark_parser, check_outputs
from lib.seeds.plots import plot_setting, read_setting_runs


def parse_args() -> argparse.Namespace:
    parser = benchmark_parser(
        __doc__,
        setting=('setting', 'axis label'),
        mark_name=('', 'name of the line at --mark'),
        out=('setting.png', 'PNG to write'),
    )
    parser.add_argument('runs', help='runs.csv')
    parser.add_argument('--metric', required=True, help='key of the metric')
    parser.add_argument('--mark', type=float, help='value of the setting to mark by a line')
    return parser.parse_args()


@show_user_errors(OSError, ValueError, KeyError)
def main() -> None:
    args = parse_args()
    check_outputs(args, 'out')
    runs = read_setting_runs(args.runs, args.metric)
    options = {key: getattr(args, key) for key in ('setting', 'metric', 'mark', 'mark_name')}
    print(f'Wrote {plot_setting(runs, args.out, **options)}')


if __name__ == '__main__':
    sys.exit(main())
