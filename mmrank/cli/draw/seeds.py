r"""Draw a comparison over seeds: box plots, or lines over the values of one setting.

    mmrank draw seeds work_dirs/bccd_losses/runs.csv --scale 100
    mmrank draw seeds work_dirs/long_tail_rate/runs.csv \
        --metrics ranking/AP --setting "positives in a batch"

With --setting the methods are named METHOD-VALUE, as in configs/long_tail/positive_rate.yaml; the
lines are the mean and standard deviation of the first metric.
"""

from mmrank.cli.options import check_outputs, tool_parser
from mmrank.experiments.records import by_setting, read_values
from mmrank.pictures.seeds import draw_box_plot, plot_setting


def main() -> None:
    parser = tool_parser(
        __doc__,
        scale=(1.0, '100 for percent'),
        setting=(None, 'what the values of <method>-<value> are; draws lines over them'),
        out=('seeds.png', 'PNG to write'),
    )
    add = parser.add_argument
    add('runs', help='runs.csv')
    add('--metrics', nargs='+', default=(), help='default: all of the file')
    add('--mark', type=float, help='value of the setting to mark by a line')
    args = parser.parse_args()
    check_outputs(args, 'out')
    values = read_values(args.runs, args.metrics, args.scale)
    metrics = list(next(iter(values.values())))
    if args.setting is None:
        path = draw_box_plot(values, metrics, args.out)
    else:
        runs = by_setting(values, metrics[0])
        options = dict(setting=args.setting, metric=metrics[0], mark=args.mark)
        path = plot_setting(runs, args.out, **options)
    print(f'Wrote {path}')
