r"""Write a retrieval report of models: table, curves, and the best images of some queries.

    mmrank draw retrieval \
        "stable AP=stable.py,work_dirs/stable/epoch_50.pth" "triplet=features.npz"

NAME=PATH is a config with its checkpoint, which is tested once, or features that a test has written
(RetrievalMetric(out_file='features.npz')).
"""

from pathlib import Path

from rich.console import Console

from mmrank.cli.draw.features import add_model_options, features_by_name
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.pictures.retrieval_report import evaluate_features, plot_curves, write_retrieval_table
from mmrank.pictures.retrieval_sheets import CHOICES, draw_sheets


def main() -> None:
    parser = tool_parser(
        __doc__,
        out_dir='work_dirs/retrieval_report',
        recall_at=([1, 10, 100, 1000], 'the K of Recall@K'),
        num_queries=(8, 'queries of a sheet'),
        top_k=(10, 'images for each query'),
        image_root=('.', 'folder that relative image paths start from'),
    )
    add_model_options(parser)
    parser.add_argument(
        '--sheets',
        nargs='*',
        choices=CHOICES,
        default=['random', 'worst', 'differing'],
        help='queries to draw; nothing after it for no sheets (default: random worst differing)',
    )
    args = parse_at_least(parser, num_queries=1, top_k=1)

    from mmengine.device import get_device  # seconds, which the help need not take

    out = Path(args.out_dir)
    models = features_by_name(args, out)
    results = [
        evaluate_features(name, features.to(get_device()), recall_at=args.recall_at)
        for name, features in models.items()
    ]
    paths = write_retrieval_table(results, out, Console())
    paths += plot_curves(results, out)
    if args.sheets and any(f.paths is None for f in models.values()):
        print('No sheets: the features have no image paths (see out_file of RetrievalMetric).')
    elif args.sheets:
        options = {key: getattr(args, key) for key in ('sheets', 'num_queries', 'top_k')}
        paths += draw_sheets(models, results, out, root=args.image_root, **options)
    for path in paths:
        print(f'wrote {path}')
