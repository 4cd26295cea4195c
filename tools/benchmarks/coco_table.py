r"""COCO benchmark: a table and curves of detectors.

    python tools/benchmarks/coco_table.py "stable AP=a.bbox.json" focal=b.bbox.json \
        --ann-file val.json --out-dir work_dirs/table
    python tools/benchmarks/coco_table.py \
        "stable AP=stable.py,stable.pth" "focal=focal.py,focal.pth" --out-dir work_dirs/table

NAME=PATH is a prediction file (CocoMetric's outfile_prefix), a folder with one, or a config, tested
once in a process of its own, which measures speed and memory; without a checkpoint it is trained
first.

Written to the out dir: coco_table.md and .csv, classes.csv, pr_curves.png, and runs/, from which
the same command goes on. LVIS annotations are evaluated by the package lvis.
"""

from mmrank.interruption import AGAIN, end_on_signals

if __name__ == '__main__':
    end_on_signals(AGAIN)  # the imports below take seconds
import argparse
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from detectors.evaluation import describe_runs, rich_benchmark, run_benchmark, write_benchmark
from detectors.runs import (
    ModelResult,
    find_annotations,
    find_finished,
    measure,
    parse_entries,
    plan_run,
    read_result,
)
from mmrank.apis.coco.pr_curves import plot_pr_curves
from mmrank.apis.common.command_line import Entry, tool_parser
from mmrank.apis.entry_point import add_checkpoint_options, checkpoint_words
from mmrank.errors import UserError, show_user_errors

HERE = Path(__file__).resolve().parent


def parse_args(arguments=None) -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        ann_file=(None, 'annotation file of the test split; None: that of the runs'),
        out_dir='work_dirs/coco_table',
    )
    add = parser.add_argument
    add(
        'models',
        nargs='+',
        metavar='[NAME=]PATH[,CHECKPOINT]',
        help="prediction file, folder with one, or config; the name defaults to the path's",
    )
    add(
        '--classes',
        nargs='+',
        metavar='CLASS',
        help='classes to draw curves of (default: the most frequent ones)',
    )
    add(
        '--cfg-options', nargs='+', default=[], metavar='KEY=VALUE', help='overrides of all configs'
    )
    add_checkpoint_options(parser)
    return parser.parse_args(arguments)


def get_result(entry: Entry, args: argparse.Namespace, console: Console) -> ModelResult:
    """Find a model's predictions, or run its config."""
    if not entry.is_config:
        return read_result(entry)
    from mmengine.device import get_device

    from mmrank.apis.entry_point import read_config

    try:
        content = read_config(str(entry.path)).to_dict()
    except UserError as error:
        raise UserError(f'{entry.name}: {error}') from error
    content = {'config': content, 'options': args.cfg_options}
    if args.allow_partial:
        content['allow_partial'] = args.allow_partial
    folder, digest = plan_run(entry, content, get_device(), args.out_dir)
    result = find_finished(entry.name, folder, digest)
    if result is not None:
        say(console, f'{entry.name}: run before, in {folder}')
        return result
    what = 'testing' if entry.checkpoint else 'training and testing'
    say(console, f'{entry.name}: {what}, log in {folder / "output.log"}')
    options = checkpoint_words(args)
    if args.cfg_options:
        options = [*options, '--cfg-options', *args.cfg_options]
    shown = time.monotonic()
    with console.status(escape(f'{entry.name}: starting')) as status:

        def update(text: str) -> None:
            nonlocal shown
            status.update(escape(f'{entry.name}: {text}'))
            # Without a terminal the status is not drawn.
            if not console.is_terminal and time.monotonic() - shown > 30:
                shown = time.monotonic()
                say(console, f'{entry.name}: {text}')

        return measure(HERE / 'measure_detector.py', entry, folder, digest, options, update)


def say(console: Console, text: str) -> None:
    """Print a line as it is, however long its paths are."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def run(args: argparse.Namespace, console: Console) -> None:
    """Run the tool."""
    entries = parse_entries(args.models)
    results = [get_result(entry, args, console) for entry in entries]
    ann_file = find_annotations(results, args.ann_file)
    with console.status('starting') as status:
        benchmark = run_benchmark(
            results, ann_file, on_step=lambda text: status.update(escape(text))
        )
        status.update('drawing')
        picture = plot_pr_curves(
            benchmark.curves, Path(args.out_dir) / 'pr_curves.png', classes=args.classes
        )
    title = f'{Path(ann_file).name}, {benchmark.num_images} images, {benchmark.evaluator}'
    notes = [*describe_runs(benchmark.rows), *benchmark.notes]
    say(console, title)
    console.print(rich_benchmark(benchmark.rows))
    for note in notes:
        say(console, note)
    for path in (*write_benchmark(benchmark.rows, args.out_dir, title, notes), picture):
        say(console, f'wrote {path}')


@show_user_errors(*(OSError, ValueError), on_interrupt=AGAIN)
def main() -> None:
    args = parse_args()
    # A termination is treated as an interrupt: a run that was started ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(args, Console())


if __name__ == '__main__':
    sys.exit(main())
