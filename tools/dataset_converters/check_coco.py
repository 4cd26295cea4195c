"""Check COCO annotation files before they are trained on.

    python tools/dataset_converters/check_coco.py data/x/train.json \
        --images data/x/train

shows objects per class and size, and every kind of problem with its count,
the first places and the fix. The exit code is 0 for a good file (warnings
allowed) and 1 for a bad one. With --config, all data sets of a config are
checked, and num_classes against them.

--fix OUT.json writes a cleaned copy of a file that can be parsed: bad
annotations are dropped, duplicate ids renumbered, missing area and iscrowd
filled in. Look at what it dropped: a wrong box is gone, not mended.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mmrank.datasets.checks.coco_cleaning import clean_coco
from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.coco_reading import read_coco_json
from mmrank.datasets.checks.coco_report import CocoReport
from mmrank.errors import UserError
from mmrank.files.atomic_file import write_atomically


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('ann_file', nargs='?', help='COCO JSON file')
    parser.add_argument(
        '--config', help='check the data sets of this config instead'
    )
    parser.add_argument(
        '--images',
        metavar='DIR',
        help='folder of the images; without it no image file is looked for',
    )
    parser.add_argument(
        '--verify-images',
        action='store_true',
        help='also decode every image, which finds those that are cut off, '
        'and compare width and height',
    )
    parser.add_argument(
        '--examples',
        type=int,
        default=5,
        help='findings shown per kind (default: %(default)s)',
    )
    parser.add_argument(
        '--fix', metavar='OUT.json', help='write a cleaned copy'
    )
    args = parser.parse_args()
    if (args.ann_file is None) == (args.config is None):
        parser.error('pass an annotation file or --config CONFIG')
    if args.config and args.fix:
        parser.error('--fix takes one annotation file, not --config')
    if args.fix and Path(args.fix).resolve() == Path(args.ann_file).resolve():
        parser.error('--fix must name another file than the one checked')
    return args


def show(report: CocoReport, console: Console) -> None:
    """Print the tables of one report."""
    table = Table(
        title=escape(report.ann_file),
        caption=f'{report.num_images} images, {report.num_empty_images} of '
        f'them without objects; {report.num_annotations} annotations',
    )
    table.add_column('class')
    columns = ('total', 'small', 'medium', 'large', 'crowd')
    for column in columns:
        table.add_column(column, justify='right')
    for name, count in report.counts.items():
        cells = [str(getattr(count, column)) for column in columns]
        table.add_row(escape(name), *cells)
    console.print(table)
    if not report.problems:
        console.print('[green]No problem found.[/]')
        return
    table = Table(title='Problems', show_lines=True)
    for column in ('', 'problem', 'count', 'where', 'fix'):
        table.add_column(column, overflow='fold')
    for problem in report.problems:
        where = list(problem.examples)
        if problem.count > len(where):
            where.append(f'... and {problem.count - len(where)} more')
        table.add_row(
            '[red]error[/]' if problem.is_error else '[yellow]warning[/]',
            problem.kind,
            str(problem.count),
            escape('\n'.join(where)),
            escape(problem.fix),
        )
    console.print(table)


def main() -> int:
    """Check, show, and clean on request."""
    args = parse_args()
    console = Console()
    try:
        if args.config:
            # Imported late: a file alone needs no torch.
            from mmengine.config import Config

            from mmrank.datasets.checks.coco_check import check_config

            reports = check_config(
                Config.fromfile(args.config), verify_images=args.verify_images
            )
            for report in reports:
                show(report, console)
            return 0
        document = read_coco_json(args.ann_file)
    except UserError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    report = inspect_coco(
        document,
        args.ann_file,
        args.images,
        verify_images=args.verify_images,
        max_examples=args.examples,
    )
    show(report, console)
    if args.fix:
        try:
            cleaned, changes = clean_coco(document)
            write_atomically(json.dumps(cleaned).encode(), args.fix)
        except (OSError, RecursionError, UserError) as error:
            print(f'error: {args.fix}: {error}', file=sys.stderr)
            return 1
        console.print(f'Wrote {args.fix}:')
        for change in changes or ['nothing had to be changed']:
            console.print(f'  {escape(change)}')
    return 0 if report.ok else 1


if __name__ == '__main__':
    sys.exit(main())
