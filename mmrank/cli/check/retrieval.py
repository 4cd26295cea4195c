r"""Check retrieval data sets before a training.

    mmrank check retrieval CONFIG --read-images
    mmrank check retrieval data/mine --depth 1

It finds lines that cannot be read, missing, doubled and damaged images, classes with fewer than two
images, and classes or images that the training split shares with another split.

exit status: 0 no error, 1 an error in the data, 2 nothing was checked.
"""

from pathlib import Path
from statistics import mean, median

from mmengine.config import Config
from rich.console import Console

from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.datasets.checks.retrieval_check import inspect_config
from mmrank.errors import UserError
from mmrank.pictures.tables import console_table, problem_table
from mmrank.runners.config import read_config


def main() -> int:
    parser = tool_parser(
        __doc__,
        depth=(1, 'of a folder: levels of folders that name a class'),
        read_images=(False, 'also decode every image'),
    )
    parser.add_argument('source', metavar='CONFIG|FOLDER', help='config file or folder')
    args = parse_at_least(parser, depth=1)
    if Path(args.source).is_dir():
        dataset = dict(type='mmrank.ClassFolder', data_root=args.source, depth=args.depth)
        cfg = Config(dict(train_dataloader=dict(dataset=dataset)))
    elif args.depth != 1:
        parser.error('--depth is of a folder; a config sets depth of its data sets')
    elif Path(args.source).exists():
        cfg = read_config(args.source)
    else:
        parser.error(f'{args.source} is neither a config nor a folder')
    reports = inspect_config(cfg, read_images=args.read_images)
    if not reports:
        what = f'{args.source} names no retrieval data set of mmrank'
        fix = 'pass a config whose data loaders have one, or a folder of class folders'
        raise UserError(what, fix)
    rows = []
    for report in reports:
        sizes = [*report.counts.values()] or [0]
        figures = len(report.counts), sum(sizes), min(sizes), median(sizes), mean(sizes), max(sizes)
        rows.append([report.where, *(f'{x:,.4g}' if x % 1 else f'{x:,.0f}' for x in figures)])
    header = ('data set', 'classes', 'images', 'min', 'median', 'mean', 'max')
    console = Console()
    console.print(console_table(header, rows, title='Images per class'))
    problems = {report.where: report.problems for report in reports if report.problems}
    console.print(problem_table(problems) if problems else '[green]No problem found.[/]')
    return 1 if any(report.errors for report in reports) else 0
