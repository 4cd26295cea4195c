"""Bytes that a listwise loss sends between ranks in a training step.

Starts gloo processes on this machine, gives each its own logits and counts the bytes that the loss
hands to every collective. What a rank then sends is estimated for a ring: `2 (W - 1)/W` of an
all-reduced tensor, `W - 1` times its own part of a gathered one.

    python tools/benchmarks/wire_bytes.py
    python tools/benchmarks/wire_bytes.py --ranks 3 --positives 2000
"""

import collections

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from mmrank.apis.common.command_line import tool_parser
from mmrank.testing.processes import run_on_ranks

LOSSES = ('StableAPLoss', 'APLoss', 'ALRPLoss', 'RankSortLoss', 'DRLoss')


def size_of(tensor):
    return tensor.numel() * tensor.element_size()


def count_collectives():
    """Wrap the collectives of torch.distributed; return what they moved."""
    moved = collections.Counter()
    all_reduce = dist.all_reduce
    all_gather = dist.all_gather

    def counted_reduce(tensor, *args, **kwargs):
        moved['calls'] += 1
        moved['reduced'] += size_of(tensor)
        return all_reduce(tensor, *args, **kwargs)

    def counted_gather(parts, tensor, *args, **kwargs):
        moved['calls'] += 1
        moved['gathered'] += size_of(tensor)
        return all_gather(parts, tensor, *args, **kwargs)

    dist.all_reduce, dist.all_gather = counted_reduce, counted_gather
    return moved


def step(name, args, rank, mode):
    """Forward and backward of one loss on this rank's logits."""
    from mmrank.registry import MODELS

    g = torch.Generator().manual_seed(rank)
    rows = args.logits // args.classes
    logits = torch.randn(rows, args.classes, generator=g).requires_grad_()
    target = torch.full((rows,), args.classes)
    # Ranks never have equally many boxes.
    positives = args.positives - rank * (args.positives // 10)
    target[:positives] = torch.randint(0, args.classes, (positives,), generator=g)
    config = dict(type=f'mmrank.{name}', mode=mode)
    if name == 'StableAPLoss':
        config.update(rho=1.0, num_classes=args.classes)
    loss = MODELS.build(config)
    boxes = torch.rand(positives, generator=g)
    given = {'quality': dict(quality=boxes), 'loss': dict(box_loss=boxes)}
    losses = loss(logits, target, **given.get(loss.box_input, {}))
    losses = losses.values() if isinstance(losses, dict) else [losses]
    sum(losses).backward()


def measure(rank, args):
    """Bytes that each loss moved on this rank."""
    moved = count_collectives()
    rows = []
    for name in LOSSES:
        for mode in ('flatten', 'per_class'):
            moved.clear()
            step(name, args, rank, mode)
            rows.append((name, mode, dict(moved)))
    return rows


def main():
    logits = (3_500_000, 'on each rank')
    positives = (500, 'on the first rank')
    parser = tool_parser(__doc__, ranks=2, logits=logits, positives=positives, classes=80)
    args = parser.parse_args()
    try:
        rows = run_on_ranks(measure, args.ranks, args)[0]
    except ChildProcessError as error:
        parser.exit(1, f'{error}\n')

    world = args.ranks
    everything = 4 * args.logits * (world - 1)
    table = Table(
        *('loss', 'mode', 'calls', 'gathered', 'reduced', 'sent', 'of all logits'),
        title=f'{world} ranks, {args.logits} float32 logits and up to '
        f'{args.positives} positives each, {args.classes} classes; KiB a rank',
    )
    for name, mode, moved in rows:
        gathered = moved.get('gathered', 0)
        reduced = moved.get('reduced', 0)
        sent = (world - 1) * gathered + 2 * (world - 1) / world * reduced
        row = (
            name,
            mode,
            str(moved['calls']),
            *(f'{x / 1024:,.1f}' for x in (gathered, reduced, sent)),
        )
        table.add_row(*row, f'{sent / everything:.2%}')
    Console().print(table)


if __name__ == '__main__':
    main()
