"""Check COCO annotation files before a training.

    mmrank check coco data/x/train.json --images data/x/train
    mmrank check coco data/x/train.json --fix clean.json
    mmrank check coco --config CONFIG

It shows the objects of each class and size, and each kind of problem with its count, first places
and fix. Several files are also compared: labels must agree, and no picture should be in two files,
also under another name; --fix then writes the first without those that the others have.

exit status: 0 no error, 1 an error in the data, 2 all else.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from mmrank.annotations.check import inspect_coco
from mmrank.annotations.clean import clean_coco
from mmrank.annotations.documents import merge_coco
from mmrank.annotations.findings import CocoReport
from mmrank.annotations.read import read_coco_json
from mmrank.annotations.splits import Split, compare_labels, find_shared_images, look_at
from mmrank.cli.options import tool_parser
from mmrank.errors import UserError
from mmrank.files import check_output, write_atomically
from mmrank.own_data.folder import find_images, with_images
from mmrank.own_data.labels import split_of
from mmrank.pictures.tables import console_table, problem_table


def show(report: CocoReport, console: Console) -> None:
    """Print the tables of one report."""
    columns = ('total', 'small', 'medium', 'large', 'crowd')
    rows = [
        [name, *(getattr(count, column) for column in columns)]
        for name, count in report.counts.items()
    ]
    text = f'{report.num_images} images, {report.num_empty_images} of them without objects; '
    text += f'{report.num_annotations} annotations'
    console.print(console_table(('class', *columns), rows, title=report.ann_file, caption=text))
    if report.problems:
        console.print(problem_table({report.ann_file: report.problems}))
    else:
        console.print('[green]No problem found.[/]')


def compare(reports: list[CocoReport], console: Console) -> set:
    """Say which pictures are in two files; return the ids of such images of the first file.

    A UserError where labels differ.
    """
    parts = [Split(x.ann_file, x.image_dir or '', None, x, is_trained=False) for x in reports]
    parts = [look_at(x) if x.image_dir else x for x in parts]
    files: set[str] = set()
    for index, part in enumerate(parts):
        trained = part._replace(is_trained=True)
        for other, shared in find_shared_images([trained, *parts[index + 1 :]]):
            console.print(f'[yellow]warning[/]: {escape(str(other.report.problems[-1]))}')
            files.update(shared.values() if index == 0 else ())
    compare_labels(parts)
    return {x for x, path in zip(reports[0].images, parts[0].paths()) if path in files}


def _write_json(document: dict, path: str, console: Console) -> None:
    """Write a document, whole or not at all."""
    try:
        text = json.dumps(document)
    except RecursionError as error:
        what = 'the file nests lists or objects too deep to be written again'
        raise UserError(what, 'export it again as COCO') from error
    write_atomically(text.encode(), path)
    console.print(f'Wrote {escape(path)}')


def main() -> int:
    parser = tool_parser(__doc__)
    add = parser.add_argument
    add('ann_files', nargs='*', help='COCO JSON file; several are compared with each other')
    add('--config', help='check the data sets of this config instead')
    images = 'folder of the images (default: none, of several files where each of them is)'
    add('--images', metavar='DIR', help=images)
    verify = 'also decode every image, which finds those that are cut off, and compare their size'
    add('--verify-images', action='store_true', help=verify)
    add('--fix', metavar='OUT.json', help='write a cleaned copy of the first file')
    merge = 'write all files as one, renumbered, with classes of one name as one class'
    add('--merge', metavar='OUT.json', help=merge)
    args = parser.parse_args()
    if bool(args.ann_files) == bool(args.config):
        parser.error('pass an annotation file or --config CONFIG')
    if args.config and (args.images or args.fix or args.merge):
        parser.error('--images, --fix and --merge are of annotation files, not of --config')
    if args.fix and args.merge:
        parser.error('--fix and --merge are two steps: clean each file, then merge')
    if args.merge and len(args.ann_files) < 2:
        parser.error('--merge takes two annotation files or more')
    console = Console()
    if args.config:
        # Imported late: a file alone needs no torch.
        from mmrank.datasets.checks.coco_check import check_config
        from mmrank.runners.config import read_config

        reports = check_config(read_config(args.config), verify_images=args.verify_images)
        if not reports:
            what = f'{args.config} names no COCO data set with local files'
            raise UserError(what, 'pass a config of a detector, or the annotation file itself')
        for report in reports:
            show(report, console)
        return 0
    for out in filter(None, (args.fix, args.merge)):
        check_output(out, *args.ann_files)
    real = [os.path.realpath(x) for x in args.ann_files]
    twice = next((x for x, path in zip(args.ann_files, real) if real.count(path) > 1), None)
    if args.merge and twice:
        raise UserError(f'{twice} is named twice, and its images would be. Fix: each file once')
    documents = {path: read_coco_json(path) for path in args.ann_files}
    reports = []
    for path in args.ann_files:
        image_dir = args.images
        if len(args.ann_files) > 1:
            # Each has its own, below --images.
            folder = Path(path).parent
            folder = folder.parent if folder.name == 'annotations' else folder
            place = Path(path), Path(args.images or folder), split_of(Path(path))
            with suppress(UserError, OSError):
                image_dir = str(find_images(documents[path], *place))
        verify = args.verify_images
        reports.append(inspect_coco(documents[path], path, image_dir, verify_images=verify))
        show(reports[-1], console)
    are_good = all(x.ok for x in reports)
    document = documents[args.ann_files[0]]
    shared = set()
    if are_good and reports[1:] and not args.merge:
        shared = compare(reports, console)
        document = with_images(document, reports[0].images.keys() - shared)
        if args.fix and not document['images']:
            what = f'every image of {args.ann_files[0]} is in another of the files'
            raise UserError(what, 'a file with other images first')
    if args.fix and (are_good or not reports[1:]):
        cleaned, changes = clean_coco(document, reports[0].image_dir)
        _write_json(cleaned, args.fix, console)
        if reports[1:]:
            changes.append(f'left out {len(shared)} images that other files have, too')
        for change in changes or ['nothing had to be changed']:
            console.print(f'  {escape(change)}')
    if not are_good:
        return 1
    if args.merge:
        merged = merge_coco(documents)
        report = inspect_coco(merged, args.merge)
        if report.problems:
            console.print(escape(report.describe(report.problems)), soft_wrap=True)
        _write_json(merged, args.merge, console)
    return 0
