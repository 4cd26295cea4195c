"""The cost of unverified images for a rare class, with and without the mask.

    python tools/analysis_tools/federated_cost.py
    python tools/analysis_tools/federated_cost.py --same-look

A linear scorer ranks made-up boxes; half of the images of a rare class are neither annotated nor
verified for it, as in LVIS. It is trained with all annotations, and with those of the federated
data set with and without the mask of federated=True. Written: federated_cost.md and .csv.
"""

import argparse
import statistics
import sys
from pathlib import Path

import torch
from rich.progress import track

from mmrank.errors import UserError, show_user_errors
from mmrank.visualization.tables import write_table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.common.command_line import benchmark_parser
from research.theory.federated_cost import ARMS, rare_class_ap


def parse_args() -> argparse.Namespace:
    parser = benchmark_parser(
        __doc__,
        loss=(['mmrank.StableAPLoss'], 'ranking losses by name'),
        seeds=3,
        same_look=(False, 'the objects that are not annotated look like those that are'),
    )
    parser.add_argument('--out-dir', type=Path, default=Path('work_dirs/federated_cost'))
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f'--seeds must be at least 2, got {args.seeds}')
    return args


def percent(values: list[float]) -> str:
    """Mean and standard deviation of shares."""
    mean, spread = statistics.mean(values), statistics.stdev(values)
    return f'{100 * mean:.1f} ± {100 * spread:.1f}'


@show_user_errors(KeyError)
def main() -> None:
    args = parse_args()
    # Small tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    cases = [(loss, arm) for loss in args.loss for arm in ARMS]
    rows = []
    for loss, arm in track(cases, description='training'):
        config = dict(type=loss, mode='per_class')
        try:
            aps = [rare_class_ap(arm, seed, config, args.same_look) for seed in range(args.seeds)]
        except TypeError as error:
            raise UserError(
                f'--loss {loss} cannot rank the classes one by one ({error}). '
                'Fix: take a ranking loss such as mmrank.StableAPLoss'
            ) from error
        rare, others = zip(*aps)
        rows.append((loss, arm, percent(rare), percent(others)))
        print(*rows[-1], sep='  ')
    paths = write_table(
        ('loss', 'annotations', 'AP of the rare class', 'AP of the others'),
        rows,
        args.out_dir / 'federated_cost',
        'What unverified images cost a rare class',
        f'{args.seeds} seeds, one ranking per class; what is not annotated '
        f'has {"the same" if args.same_look else "another"} look.',
    )
    for path in paths:
        print(f'wrote {path}')


if __name__ == '__main__':
    sys.exit(main())
