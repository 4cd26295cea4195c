"""The cost of unverified images for a rare class, with and without the mask.

    python tools/research/federated_cost.py
    python tools/research/federated_cost.py --same-look

A linear scorer ranks made-up boxes; half of the images of a rare class are neither annotated nor
verified for it, as in LVIS. It is trained with all annotations, and with a federated data set's,
with and without the mask of federated=True. Written: a record, federated_cost.csv.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from rich.progress import track

from mmrank.errors import UserError, show_user_errors
from mmrank.files import write_csv_atomically

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.records import current_commit
from research.theory.federated_cost import ARMS, STEPS, rare_class_ap


def parse_args() -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        loss=(['mmrank.StableAPLoss'], 'ranking losses by name'),
        seeds=5,
        same_look=(False, 'the objects that are not annotated look like those that are'),
    )
    parser.add_argument('--out-dir', type=Path, default=Path('work_dirs/federated_cost'))
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f'--seeds must be at least 2, got {args.seeds}')
    return args


@show_user_errors(KeyError)
def main() -> None:
    args = parse_args()
    # Small tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    cases = [(loss, arm) for loss in args.loss for arm in ARMS]
    rows = [['method', 'seed', 'step', 'commit', 'seconds', 'settings', 'rare', 'others']]
    for loss, arm in track(cases, description='training'):
        config = dict(type=loss, mode='per_class')
        for seed in range(args.seeds):
            begin = time.process_time()
            try:
                aps = rare_class_ap(arm, seed, config, args.same_look)
            except TypeError as error:
                raise UserError(
                    f'--loss {loss} cannot rank the classes one by one ({error}). '
                    'Fix: take a ranking loss such as mmrank.StableAPLoss'
                ) from error
            name = arm if len(args.loss) == 1 else f'{loss}, {arm}'
            took = time.process_time() - begin
            settings = json.dumps(dict(same_look=args.same_look))
            facts = [name, seed, STEPS, current_commit(), f'{took:.1f}', settings]
            rows.append(facts + [f'{ap:.5f}' for ap in aps])
        print(name, *rows[-1][-2:], sep='  ')
    print(f'wrote {write_csv_atomically(rows, args.out_dir / "federated_cost.csv")}')


if __name__ == '__main__':
    sys.exit(main())
