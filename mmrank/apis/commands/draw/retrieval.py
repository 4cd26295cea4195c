r"""Retrieval report: table, curves and pictures of one or more models.

    mmrank draw retrieval \
        "stable AP=stable.py,work_dirs/stable/epoch_50.pth" "triplet=features.npz" \
        --out-dir work_dirs/report

NAME=PATH is a config with its checkpoint, which is tested once, or the features that a test has
written (RetrievalMetric(out_file='features.npz')), on several GPUs, too.

Written to the out dir: retrieval.md and .csv, precision_recall.png, recall_at_k.png, and sheets
with the best images of some queries: random, worst, and those where models differ most.
"""

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console

from mmrank.apis.common.command_line import parse_at_least, tool_parser
from mmrank.apis.retrieval.models import add_model_options, features_by_name
from mmrank.apis.retrieval.report import (
    describe_test_set,
    evaluate_features,
    plot_curves,
    rich_retrieval,
    write_retrieval_table,
)
from mmrank.apis.retrieval.sheets import CHOICES, draw_sheets
from mmrank.errors import show_user_errors


def parse_args(arguments=None) -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        out_dir='work_dirs/retrieval_report',
        recall_at=([1, 10, 100, 1000], 'the K of Recall@K'),
        num_queries=(8, 'queries of a sheet'),
        top_k=(10, 'images for each query'),
        image_root=('.', 'folder that relative image paths start from'),
    )
    add_model_options(parser)
    add = parser.add_argument
    add(
        '--sheets',
        nargs='*',
        choices=CHOICES,
        default=['random', 'worst', 'differing'],
        help='queries to draw; nothing after it for no sheets (default: random worst differing)',
    )
    return parse_at_least(parser, arguments, num_queries=1, top_k=1)


def say(console: Console, text: str) -> None:
    """Print a line as it is, however long its paths are."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def run(args: argparse.Namespace, console: Console) -> None:
    """Run the tool."""
    from mmengine.device import get_device

    models = features_by_name(args, args.out_dir, partial(say, console))
    with console.status('ranking'):
        results = [
            evaluate_features(name, features.to(get_device()), recall_at=args.recall_at)
            for name, features in models.items()
        ]
    say(console, describe_test_set(results[0]))
    console.print(rich_retrieval(results))
    out = Path(args.out_dir)
    paths = write_retrieval_table(results, out)
    paths += plot_curves(results, out)
    if args.sheets and any(f.paths is None for f in models.values()):
        say(
            console,
            'No sheets: the features have no image paths (see out_file of RetrievalMetric).',
        )
    elif args.sheets:
        options = {key: getattr(args, key) for key in ('sheets', 'num_queries', 'top_k')}
        paths += draw_sheets(models, results, out, root=args.image_root, **options)
    for path in paths:
        say(console, f'wrote {path}')


@show_user_errors(
    *(OSError, ValueError, TypeError, ImportError),
    on_interrupt='Interrupted. Run the same command again to continue; existing features are kept.',
)
def main() -> None:
    run(parse_args(), Console())
