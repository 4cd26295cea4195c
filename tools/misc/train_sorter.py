r"""Train the sorter of mmrank.SoDeepLoss on made-up lists.

  python tools/misc/train_sorter.py configs/sodeep/sorter_small.yaml sorter.pth python
  tools/misc/train_sorter.py configs/sodeep/sorter_lstm512.yaml \
      sorter_224.pth --length 224 --device cuda

The YAML file has the size of the network and of the training; --length is the longest list of a
batch: 223 for 56 x 4 images, each of which searches the others. The loss then takes
sorter='sorter.pth'.
"""

import sys
from pathlib import Path

import torch
import yaml
from rich.console import Console

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.files import check_output
from mmrank.losses.ranking.sodeep import RankSorter
from rankings import train_sorter

SETTINGS = ('kind', 'length', 'hidden', 'layers', 'steps', 'batch_size', 'learning_rate')


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('plan', metavar='YAML', help='sizes, see above')
    parser.add_argument('out', metavar='OUT', help='.pth file to write')
    parser.add_argument('--length', type=int, help='scores of a list')
    parser.add_argument('--steps', type=int, help='batches to train on')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--device', default='cpu')
    args = parser.parse_args()
    check_output(args.out, args.plan)
    plan = yaml.safe_load(Path(args.plan).read_text(encoding='utf-8'))
    if not isinstance(plan, dict) or set(plan) != set(SETTINGS):
        raise UserError(
            f'{args.plan} must have the fields {", ".join(SETTINGS)}. Fix: begin '
            'with configs/sodeep/sorter_small.yaml'
        )
    for name in ('length', 'steps'):
        if getattr(args, name) is not None:
            plan[name] = getattr(args, name)
    torch.manual_seed(args.seed)
    sorter = RankSorter(**{k: plan[k] for k in ('kind', 'length', 'hidden', 'layers')})
    console = Console()
    steps = plan['steps']
    error = float('nan')
    for step, error in train_sorter(
        sorter.to(args.device),
        steps=steps,
        batch_size=plan['batch_size'],
        learning_rate=plan['learning_rate'],
        seed=args.seed,
        interval=max(steps // 10, 1),
    ):
        console.print(
            f'{step} of {steps} steps: {error:.2f} ranks off on average, of {plan["length"]}'
        )
    sorter.cpu().save(args.out, error)
    console.print(f'Wrote {args.out}')


if __name__ == '__main__':
    sys.exit(main())
