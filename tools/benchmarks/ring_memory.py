"""Memory of a contrastive loss over ranks: keys gathered, or in a ring.

Gloo processes on this machine take the value and the gradient of a loss with ``gather='all'`` and
``'ring'``. Memory is the peak of torch's CPU allocator beyond the embeddings, on the rank that
takes most, the least of some repeats: gloo may let go of a tensor late.

    python tools/benchmarks/ring_memory.py
    python tools/benchmarks/ring_memory.py --ranks 2 --loss BimodalISogCLRLoss
"""

import sys
from pathlib import Path

import torch
from memory_peak import peak_extra_memory
from rich.console import Console
from rich.table import Table

from mmrank import losses
from mmrank.testing.processes import run_on_ranks

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import benchmark_parser

LOSSES = {
    'CLIPLoss': {},
    'InfoNCELoss': {},
    'SogCLRLoss': dict(bimodal=True, num_samples=1_000_000),
    'BimodalISogCLRLoss': dict(num_samples=1_000_000),
    'SigLIPLoss': {},
}
KINDS = ('all', 'ring')


def measure(rank, args):
    """Peak bytes, value and gradient of each kind of gathering."""
    ids = torch.arange(args.batch) + rank * args.batch

    def views():
        g = torch.Generator().manual_seed(rank)
        return tuple(torch.randn(args.batch, args.dimensions, generator=g) for _ in range(2))

    found = []
    for gather in KINDS:
        if args.loss == 'SigLIPLoss' and gather == 'all':
            found.append(None)
            continue
        settings = dict(LOSSES[args.loss])
        if args.loss != 'SigLIPLoss':
            settings['gather'] = gather
        loss = getattr(losses, args.loss)(**settings)

        def step(view1, view2, loss=loss):
            leaves = view1.requires_grad_(), view2.requires_grad_()
            loss(*leaves, ids).backward()

        peak = min(peak_extra_memory(step, views) for _ in range(args.repeats))
        leaves = [x.requires_grad_() for x in views()]
        value = loss(*leaves, ids)
        gradients = torch.autograd.grad(value, leaves)
        found.append((peak, value.detach(), torch.cat(gradients)))
    peaks = [None if x is None else x[0] for x in found]
    if None in found:
        return peaks, 0.0
    (_, *one), (_, *other) = found
    difference = max(float((x - y).abs().max() / y.abs().max()) for x, y in zip(one, other))
    return peaks, difference


def main():
    batch = (256, 'pairs of each rank')
    parser = benchmark_parser(__doc__, ranks=[2, 3, 4], batch=batch, dimensions=2048, repeats=5)
    parser.add_argument('--loss', choices=LOSSES, default='CLIPLoss')
    args = parser.parse_args()
    own = 2 * 4 * args.batch * args.dimensions
    table = Table(
        *('ranks', 'all, MB', 'ring, MB', 'all, x embeddings', 'ring, x embeddings'),
        'largest relative difference',
        title=f'{args.loss}, {args.batch} pairs a rank, {args.dimensions}-d, '
        f'embeddings of {own / 1e6:.1f} MB',
    )
    for world in args.ranks:
        try:
            results = run_on_ranks(measure, world, args, method='fork')
        except ChildProcessError as error:
            parser.exit(1, f'{error}\n')
        peaks = [None if None in x else max(x) for x in zip(*(peaks for peaks, _ in results))]
        table.add_row(
            str(world),
            *('' if x is None else f'{x / 1e6:.1f}' for x in peaks),
            *('' if x is None else f'{x / own:.1f}' for x in peaks),
            f'{max(x for _, x in results):.0e}',
        )
    Console().print(table)


if __name__ == '__main__':
    main()
