r"""Train the sorter of mmrank.SoDeepLoss on made-up lists.

  python tools/misc/train_sorter.py configs/sodeep/sorter_small.yaml sorter.pth python
  tools/misc/train_sorter.py configs/sodeep/sorter_lstm512.yaml \
      sorter_224.pth --length 224 --device cuda

The YAML file has the size of the network and of the training; --length is the longest list of a
batch: 223 for 56 x 4 images, each of which searches the others. The loss then takes
sorter='sorter.pth'.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import yaml
from rich.console import Console
from torch import Tensor

from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.files import check_output
from mmrank.losses.ranking.sodeep import RankSorter, below

SETTINGS = ('kind', 'length', 'hidden', 'layers', 'steps', 'batch_size', 'learning_rate')


def made_up_lists(count: int, length: int, generator: torch.Generator) -> Tensor:
    """Lists of scores as losses meet them (Engilberge et al., SoDeep, CVPR 2019, section 3.3)."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    kind = torch.randint(4, (count, 1), generator=generator)
    flat = 2 * uniform(count, length) - 1
    normal = torch.randn(count, length, generator=generator) / 2
    ends = 2 * uniform(count, 2) - 1
    steps = torch.linspace(0, 1, length)
    even = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * steps
    narrow = ends[:, :1] + flat * (0.1 + 0.4 * uniform(count, 1))
    lists = torch.where(kind == 0, flat, normal)
    lists = torch.where(kind == 2, even, lists)
    lists = torch.where(kind == 3, narrow, lists).clamp(-2, 2)
    order = uniform(count, length).argsort(1)
    lists = lists.gather(1, order)
    filled = torch.randint(max(length // 2, 1), (count, 1), generator=generator)
    filled = filled * (uniform(count, 1) < 0.5)
    is_fill = torch.arange(length) >= length - filled
    real = torch.where(is_fill, torch.inf, lists)
    lists = torch.where(is_fill, below(real), lists)
    return lists.gather(1, uniform(count, length).argsort(1))


def exact_ranks(scores: Tensor) -> Tensor:
    """(L, n) ranks over n of (L, n) scores without ties, 1/n for the highest of each list."""
    ranks = scores.argsort(1, descending=True).argsort(1) + 1
    return ranks.to(scores.dtype) / scores.size(1)


def rank_error(sorter: RankSorter, lists: Tensor) -> float:
    """Mean distance to the exact rank; entries that fill up do not count."""
    with torch.no_grad():
        errors = (sorter(lists) - exact_ranks(lists)).abs() * lists.size(1)
    counts = lists > lists.amin(1, keepdim=True)
    return float(errors[counts].mean())


def train_sorter(
    sorter: RankSorter,
    *,
    steps: int,
    batch_size: int = 256,
    learning_rate: float = 2e-3,
    seed: int = 0,
    interval: int = 100,
) -> Iterator[tuple[int, float]]:
    """Train a network to rank, by the L1 distance to the exact ranks."""
    device = sorter.order.device
    generator = torch.Generator().manual_seed(seed)
    held_out = made_up_lists(512, sorter.length, torch.Generator().manual_seed(seed + 1)).to(device)
    optimizer = torch.optim.Adam(sorter.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(1, steps + 1):
        lists = made_up_lists(batch_size, sorter.length, generator)
        lists = lists.to(device)
        # Entries that fill up tie: which of them comes first says nothing.
        counts = lists > lists.amin(1, keepdim=True)
        error = (sorter(lists) - exact_ranks(lists)).abs()
        optimizer.zero_grad()
        error[counts].mean().backward()
        torch.nn.utils.clip_grad_norm_(sorter.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % interval == 0 or step == steps:
            yield step, rank_error(sorter, held_out)


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
        what = f'{args.plan} must have the fields {", ".join(SETTINGS)}'
        raise UserError(what, 'begin with configs/sodeep/sorter_small.yaml')
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
