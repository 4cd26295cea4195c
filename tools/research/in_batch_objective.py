r"""Objective against step of the two unbiased losses of two-tower models.

    python tools/research/in_batch_objective.py \
        configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py

Figure 4 of the paper: the unbiased loss and Sogram from the same weights, with the objective of all
users and items every --every steps. Written to the out dir: objective.png.
--sizes prints what table 3 has of the data set, and trains nothing.
"""

import argparse
import sys
from pathlib import Path

import torch
from mmengine.config import Config
from rich.console import Console
from rich.table import Table

from in_batch.plots import plot_objectives, size_row, train_in_turn
from in_batch.study import CHOICE
from in_batch.training import TwoTowerData
from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import show_user_errors

MODES = ('unbiased', 'sogram')


def parse_args() -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        sizes=(False, 'only the sizes of the data'),
        ratio=(1e-3, 'batch ratio |Ohat|^2 / |O|^2'),
        steps=100,
        every=5,
        seed=0,
        threads=1,
    )
    rates = dict(type=float, nargs=2, metavar=('SQUARE', 'LOGISTIC'))
    parser.add_argument('--lr', default=[0.125, 0.25], help='learning rates', **rates)
    parser.add_argument('config', help='config of configs/in_batch')
    parser.add_argument('--out-dir', type=Path, default=Path('work_dirs/in_batch_objective'))
    args = parser.parse_args()
    if not 0 < args.ratio <= 1:
        parser.error(f'--ratio must be in (0, 1], got {args.ratio}')
    if not 0 < args.every <= args.steps:
        parser.error(f'--every must be in [1, --steps={args.steps}], got {args.every}')
    return args


def show_sizes(data: TwoTowerData, console: Console) -> None:
    """Print the row of table 3."""
    row = size_row(data)
    table = Table(*row, title='Training pairs')
    table.add_row(*(f'{value:,.1f}'.removesuffix('.0') for value in row.values()))
    console.print(table)


@show_user_errors(OSError, ValueError, TypeError)
def main() -> int:
    args = parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    data = TwoTowerData(Config.fromfile(args.config))
    if args.sizes:
        show_sizes(data, console)
        return 0
    size = data.batch_size(args.ratio)
    table = Table(
        *('pointwise', 'loss', 'first objective', 'last', 'P@5, %'),
        'CPU ms a step',
        title=f'{args.steps} steps of {size} pairs, batch ratio {args.ratio:g}',
    )
    curves = {}
    for pointwise, lr in zip(('square', 'logistic'), args.lr):
        losses = {
            mode: dict(type='mmrank.InBatchLoss', mode=mode, pointwise=pointwise) for mode in MODES
        }
        with console.status(f'{pointwise} ...'):
            curves[pointwise] = train_in_turn(
                data, losses, size, lr, args.steps, args.every, args.seed
            )
        for mode, curve in curves[pointwise].items():
            table.add_row(
                *(pointwise, mode, f'{curve.values[0]:.5g}'),
                *(f'{curve.values[-1]:.5g}', f'{curve.metrics[CHOICE]:.2f}'),
                f'{curve.milliseconds_a_step:.1f}',
            )
    console.print(table)
    path = plot_objectives(curves, args.out_dir / 'objective.png')
    console.print(f'Wrote {path}', highlight=False)
    return 0


if __name__ == '__main__':
    sys.exit(main())
