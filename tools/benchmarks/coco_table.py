r"""COCO benchmark: a table, bars, curves and a side by side of detectors.

    python tools/benchmarks/coco_table.py "stable AP=a.bbox.json" focal=b.bbox.json \
        --ann-file val.json --out-dir work_dirs/table
    python tools/benchmarks/coco_table.py \
        "stable AP=stable.py,stable.pth" "focal=focal.py,focal.pth" \
        --side-by-side "stable AP" focal --out-dir work_dirs/table

NAME=PATH is a prediction file (CocoMetric's outfile_prefix), a folder with one, or a config, tested
once in a process of its own, which measures speed and memory; without a checkpoint it is trained
first.

Written to the out dir: coco_table.md and .csv, classes.csv, metrics.png, pr_curves.png,
side_by_side.jpg, and runs/, from which the same command goes on. LVIS annotations are evaluated by
the package lvis.
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

from mmrank.apis.coco.benchmark import CocoBenchmark, run_benchmark
from mmrank.apis.coco.detections import draw_side_by_side
from mmrank.apis.coco.pr_curves import draw_benchmark
from mmrank.apis.coco.runs import (
    ModelResult,
    check_pair,
    find_annotations,
    find_finished,
    measure,
    parse_entries,
    plan_run,
    read_result,
)
from mmrank.apis.coco.tables import describe_runs, rich_benchmark, write_benchmark
from mmrank.apis.common.command_line import Entry, foreign_pictures, parse_at_least, tool_parser
from mmrank.apis.entry_point import add_checkpoint_options, checkpoint_words
from mmrank.errors import UserError, show_user_errors

HERE = Path(__file__).resolve().parent


def parse_args(arguments=None) -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        ann_file=(None, 'annotation file of the test split; None: that of the runs'),
        out_dir='work_dirs/coco_table',
        image_dir=(None, 'folder of the images; None: that of the runs'),
        num_images=(6, 'images side by side'),
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
        help='classes to draw curves of; "all" for all of them (default: those on which the '
        'models differ most)',
    )
    add(
        '--side-by-side',
        nargs=2,
        metavar=('A', 'B'),
        help='draw these two models on the images where they differ most',
    )
    add(
        '--cfg-options', nargs='+', default=[], metavar='KEY=VALUE', help='overrides of all configs'
    )
    add_checkpoint_options(parser)
    return parse_at_least(parser, arguments, num_images=1)


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


def draw_two(
    benchmark: CocoBenchmark, results: list[ModelResult], args: argparse.Namespace, console: Console
) -> Path:
    """Draw the side by side; return what it shows."""
    chosen = {r.name: r for r in results if r.name in args.side_by_side}
    image_dir = args.image_dir or next(r.record.image_dir for r in chosen.values() if r.record)
    path, differences = draw_side_by_side(
        {name: chosen[name].predictions for name in args.side_by_side},
        benchmark.ann_file,
        image_dir,
        Path(args.out_dir) / 'side_by_side.jpg',
        num_images=args.num_images,
    )
    for d in differences:
        right, wrong = (f'{x[0]} and {x[1]}' for x in (d.right, d.wrong))
        say(console, f'image_id {d.image_id}: right {right}, wrong {wrong}')
    return path


def run(args: argparse.Namespace, console: Console) -> None:
    """Run the tool."""
    entries = parse_entries(args.models)
    results = [get_result(entry, args, console) for entry in entries]
    if args.side_by_side:
        check_pair(results, args.side_by_side, args.image_dir)
    ann_file = find_annotations(results, args.ann_file)
    with console.status('starting') as status:
        benchmark = run_benchmark(
            results, ann_file, on_step=lambda text: status.update(escape(text))
        )
        if args.side_by_side and benchmark.is_lvis:
            raise UserError(
                '--side-by-side does not support LVIS, where an object need '
                'not be annotated. Fix: remove it.'
            )
        status.update('drawing')
        paths = draw_benchmark(benchmark, args.out_dir, args.classes)
        if args.side_by_side:
            paths.append(draw_two(benchmark, results, args, console))
    title = f'{Path(ann_file).name}, {benchmark.num_images} images, {benchmark.evaluator}'
    notes = [*describe_runs(benchmark.rows), *benchmark.notes]
    notes += foreign_pictures(args.out_dir, paths)
    say(console, title)
    console.print(rich_benchmark(benchmark.rows))
    for note in notes:
        say(console, note)
    paths = [*write_benchmark(benchmark.rows, args.out_dir, title, notes), *paths]
    for path in paths:
        say(console, f'wrote {path}')


@show_user_errors(*(OSError, ValueError), on_interrupt=AGAIN)
def main() -> None:
    args = parse_args()
    # A termination is treated as an interrupt: a run that was started ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(args, Console())


if __name__ == '__main__':
    sys.exit(main())
