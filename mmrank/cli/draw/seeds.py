r"""Draw a comparison over seeds: box plots, lines over the values of a setting, or a forest.

    mmrank draw seeds work_dirs/bccd_losses/runs.csv --scale 100
    mmrank draw seeds work_dirs/long_tail_rate/runs.csv \
        --metrics ranking/AP --setting "positives in a batch"
    mmrank draw seeds work_dirs/many_sets/*/runs.csv --scale 100 --forest graded_ap

With --setting the methods are named METHOD-VALUE, as in configs/long_tail/positive_rate.yaml; the
lines are the mean and standard deviation of the first metric.

With --forest there is a record of each data set. A row of the picture is what the method gains on a
set, compared with each other method by the first metric, and the diamond its mean over the sets.
"""

import rich

from mmrank.cli.options import check_outputs, tool_parser
from mmrank.experiments import many_sets
from mmrank.experiments.records import by_setting, read_values
from mmrank.pictures.seeds import draw_box_plot, draw_forest, plot_setting
from mmrank.pictures.tables import console_table


def main() -> None:
    parser = tool_parser(
        __doc__,
        scale=(1.0, '100 for percent'),
        setting=(None, 'what the values of <method>-<value> are; draws lines over them'),
        forest=(None, 'method that is compared with the others, by set'),
        out=('seeds.png', 'PNG to write'),
    )
    add = parser.add_argument
    add('runs', nargs='+', help='runs.csv; with --forest one of each set')
    add('--metrics', nargs='+', default=(), help='default: all of the file')
    add('--mark', type=float, help='value of the setting to mark by a line')
    args = parser.parse_args()
    if args.setting is None and args.mark is not None:
        parser.error('--mark is a value of --setting')
    if args.setting is not None and args.forest is not None:
        parser.error('--setting and --forest are two pictures, leave one out')
    check_outputs(args, 'out')
    if args.forest is not None:
        sets = many_sets.read_sets(args.runs, args.metrics, args.scale)
        methods = next(iter(sets.values()))
        metric = next(iter(next(iter(methods.values()))))
        each, mean = many_sets.compare_sets(sets, args.forest, metric)
        rich.print(console_table(['', *methods], many_sets.mean_rows(sets, metric)))
        rich.print(console_table(many_sets.COLUMNS, many_sets.difference_rows(each, mean)))
        path = draw_forest(each, mean, args.out, ours=args.forest, metric=metric)
    elif len(args.runs) > 1:
        parser.error('several runs.csv are for --forest METHOD')
    elif args.setting is None:
        values = read_values(args.runs[0], args.metrics, args.scale)
        path = draw_box_plot(values, [*next(iter(values.values()))], args.out)
    else:
        values = read_values(args.runs[0], args.metrics, args.scale)
        metric = next(iter(next(iter(values.values()))))
        options = dict(setting=args.setting, metric=metric, mark=args.mark)
        path = plot_setting(by_setting(values, metric), args.out, **options)
    print(f'Wrote {path}')
