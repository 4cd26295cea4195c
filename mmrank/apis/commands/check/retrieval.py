r"""Check retrieval data sets before training.

    mmrank check retrieval CONFIG --read-images
    mmrank check retrieval data/mine --depth 1 \
        --json counts.json --histogram counts.png

Looks for lines that cannot be read, missing, doubled and damaged images, classes with less than two
images, and classes or images that the training split shares with another.

exit status: 0 no error, 1 an error in the data, 2 nothing was checked.
"""

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median

from mmengine.config import Config
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from mmrank.apis.common.command_line import check_outputs, parse_at_least, tool_parser
from mmrank.apis.common.tables import console_table, problem_table
from mmrank.apis.entry_point import read_config
from mmrank.apis.retrieval.maps import plot_class_counts
from mmrank.datasets.checks.retrieval_check import inspect_config
from mmrank.datasets.checks.retrieval_inspect import RetrievalReport
from mmrank.errors import UserError, show_user_errors
from mmrank.files import write_atomically


def parse_args() -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        depth=(1, 'of a folder: levels of folders that name a class'),
        examples=(5, 'findings shown per kind'),
        read_images=(False, 'also decode every image'),
    )
    add = parser.add_argument
    add('source', metavar='CONFIG|FOLDER', help='config file or folder')
    add('--json', metavar='FILE', help='write counts and findings')
    add('--histogram', metavar='PNG', help='draw images per class')
    args = parse_at_least(parser, depth=1)
    if not Path(args.source).exists():
        parser.error(f'{args.source} is neither a config nor a folder')
    return args


def read_source(args: argparse.Namespace) -> Config:
    """Return the config, or one that has the folder as its only split."""
    if Path(args.source).is_file():
        return read_config(args.source)
    dataset = dict(type='mmrank.ClassFolder', data_root=args.source, depth=args.depth)
    return Config(dict(train_dataloader=dict(dataset=dataset)))


def summary(report: RetrievalReport) -> dict[str, float]:
    """Numbers of classes and images."""
    sizes = list(report.counts.values())
    return {
        'classes': len(sizes),
        'images': sum(sizes),
        'min': min(sizes, default=0),
        'median': median(sizes or [0]),
        'mean': mean(sizes or [0]),
        'max': max(sizes, default=0),
        'single_image_classes': sizes.count(1),
    }


def histogram(report: RetrievalReport) -> dict[int, int]:
    """How many classes have a number of images, by that number."""
    return dict(sorted(Counter(report.counts.values()).items()))


def as_document(report: RetrievalReport) -> dict:
    """All of a report but the paths, for JSON."""
    return {
        'where': report.where,
        'source': report.source,
        'summary': summary(report),
        'histogram': histogram(report),
        'counts': report.counts,
        'problems': [asdict(problem) for problem in report.problems],
    }


def show(reports: list[RetrievalReport], console: Console) -> None:
    """Print the counts of all splits and their problems."""
    summaries = [summary(report) for report in reports]
    header = ['data set', *(name.replace('_', ' ') for name in summaries[0])]
    rows = []
    for report, numbers in zip(reports, summaries):
        cells = [f'{value:,.4g}' if value % 1 else f'{value:,.0f}' for value in numbers.values()]
        rows.append([report.where, *cells])
    console.print(console_table(header, rows, title='Images per class'))
    problems = {report.where: report.problems for report in reports if report.problems}
    console.print(problem_table(problems) if problems else '[green]No problem found.[/]')


@show_user_errors(OSError, ImportError)
def main() -> int:
    args = parse_args()
    check_outputs(args, 'json', 'histogram')
    console = Console()
    cfg = read_source(args)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task('Images', visible=args.read_images)
        reports = inspect_config(
            cfg,
            read_images=args.read_images,
            max_examples=args.examples,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    for report in reports:
        if Path(args.source).is_dir():
            report.where = args.source
        else:
            report.where = report.where.replace('_dataloader.dataset', '')
    if not reports:
        raise UserError(
            f'{args.source} names no retrieval data set of mmrank. Fix: pass a config whose data '
            'loaders have one, or a folder of class folders'
        )
    show(reports, console)
    if args.json:
        text = json.dumps([as_document(report) for report in reports], indent=2)
        write_atomically(text.encode(), args.json)
        console.print(f'Wrote {escape(args.json)}')
    if args.histogram:
        histograms = {r.where: histogram(r) for r in reports if r.counts}
        plot_class_counts(histograms, args.histogram)
        console.print(f'Wrote {escape(args.histogram)}')
    return 1 if any(report.errors for report in reports) else 0
