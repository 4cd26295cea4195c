r"""Recommend items to users by a trained two-tower model.

  python tools/analysis_tools/recommend.py CONFIG CHECKPOINT 1 42 --top-k 5

Users and items have the names of the training file. Items of the user's training pairs are left
out. --out recommended.csv keeps user,rank,item,score; --picture recommended.png draws them, and
--held-out test.csv, a file of `user,item` lines, lets it show which of them the user did choose.
"""

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from matplotlib.lines import Line2D
from rich.console import Console

from mmrank.cli.config_options import add_config_option, add_trust_option
from mmrank.cli.options import check_outputs, parse_at_least, tool_parser
from mmrank.datasets.interactions.pair_files import read_csv
from mmrank.errors import UserError, show_user_errors
from mmrank.evaluation.recommendation import recommend
from mmrank.files import write_csv_atomically
from mmrank.pictures.figures import fit_text, new_grid, save
from mmrank.pictures.palette import colour
from mmrank.pictures.tables import console_table
from mmrank.registry import DATASETS
from mmrank.runners.config import apply_options, read_config
from mmrank.runners.models import trained_model

_COLUMNS = 3
# Inches, and dots an inch: 800 pixels of a page at two dots a pixel.
_WIDTH = 8.0
_DPI = 200
_HIT = colour(0)
_OTHER = '0.65'


def draw_recommendations(
    found: Mapping[str, Sequence[tuple[str, float]]],
    path: str,
    held_out: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Draw a panel for each user: items with their scores; ``held_out`` ones have a colour."""
    columns = min(_COLUMNS, len(found))
    longest = max(map(len, found.values()), default=0)
    figure, axes = new_grid(len(found), columns, _WIDTH / columns, 0.9 + 0.24 * longest)
    for axis, (user, items) in zip(axes, found.items()):
        own = set((held_out or {}).get(user, ()))
        colours = [_HIT if name in own else _OTHER for name, _ in items]
        scores = [score for _, score in items]
        places = range(len(items))
        axis.scatter(scores, places, color=colours, s=60, zorder=3)
        axis.set_yticks(places, [fit_text(name, _WIDTH / columns / 3, 9) for name, _ in items])
        axis.set_ylim(longest - 0.5, -0.5)
        axis.tick_params(labelsize=9)
        axis.locator_params(axis='x', nbins=4)
        axis.set_xlabel('score')
        title = f'user {fit_text(user, _WIDTH / columns / 2, 10)}'
        if held_out is not None:
            right = sum(name in own for name, _ in items)
            title += f'\n{right} of {len(own)} held-out items found'
        axis.set_title(title, fontsize=10)
    if held_out is not None:
        handles = [
            Line2D([], [], color=own, marker='o', linestyle='', label=label)
            for own, label in ((_HIT, 'held out from the training'), (_OTHER, 'another item'))
        ]
        style = dict(loc='outside upper center', ncols=2, fontsize=9, frameon=False)
        figure.legend(handles=handles, **style)
    save(figure, path, dpi=_DPI)


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(__doc__, top_k=(10, 'items for each user'))
    add = parser.add_argument
    add('config', help='config of a mmrank.TwoTower')
    add('checkpoint', help='.pth file of its training')
    add('users', nargs='+', help='names of users')
    add('--out', help='CSV file to write as well')
    add('--picture', help='PNG file to draw as well')
    add('--held-out', help='pairs that were kept from the training')
    add_config_option(parser)
    add_trust_option(parser)
    args = parse_at_least(parser, top_k=1)
    if args.held_out and not args.picture:
        parser.error(f'--held-out {args.held_out} needs --picture FILE')
    check_outputs(args, 'out', 'picture')
    cfg = read_config(args.config)
    apply_options(cfg, args.cfg_options)
    model = trained_model(cfg, args.checkpoint, trust=args.trust_checkpoint)
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    pairs = getattr(dataset, 'interactions', None)
    if pairs is None:
        what = f'train_dataloader.dataset is a {type(dataset).__name__}'
        raise UserError(f'{what}, which has no users and items', "type='mmrank.InteractionDataset'")
    found = dict(zip(args.users, recommend(model, pairs, args.users, args.top_k)))
    rows = [
        (user, rank, item, score)
        for user, own in found.items()
        for rank, (item, score) in enumerate(own, 1)
    ]
    header = ('user', 'rank', 'item', 'score')
    Console().print(console_table(header, [(*row[:3], f'{row[3]:.4f}') for row in rows]))
    if args.out:
        write_csv_atomically([header, *rows], args.out)
        print(f'Wrote {args.out}')
    if args.picture:
        held_out = None
        if args.held_out:
            pairs = read_csv(args.held_out)
            held_out = defaultdict(set)
            for row, col in zip(pairs.rows, pairs.cols):
                held_out[str(pairs.row_names[row])].add(str(pairs.col_names[col]))
        draw_recommendations(found, args.picture, held_out)
        print(f'Wrote {args.picture}')


if __name__ == '__main__':
    sys.exit(main())
