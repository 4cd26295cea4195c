"""Speed of the error-driven losses beside their per-positive loops.

All sides run in one process and in turn, so the ratios hold on a busy
machine; single times do not. What is timed is forward + backward on one list
of float32 logits. The loops are the papers' definitions, and like the
authors' code they look only at the negatives above the lowest positive less
delta.

    python tools/benchmarks/ranking_losses_speed.py
    python tools/benchmarks/ranking_losses_speed.py --skip-loops --repeats 11
    python tools/benchmarks/ranking_losses_speed.py --device cuda
"""

import argparse

import torch
from pairwise_speed import make_scores
from per_positive_loops import alrp_loop, ap_loop, rank_sort_loop
from rich.console import Console
from rich.table import Table
from torch.nn.functional import binary_cross_entropy_with_logits

from mmrank.functional import (
    alrp_loss,
    ap_loss,
    dr_loss,
    rank_sort_loss,
    stable_ap_loss,
)
from mmrank.studies.common.timing import in_turn


def make_problem(positives, negatives, device):
    """Leaf logits, targets (the IoU of positives) and box errors."""
    pos, neg = make_scores('random', positives, negatives, device)
    logits = torch.cat([pos, neg])
    targets = torch.zeros_like(logits)
    g = torch.Generator().manual_seed(1)
    targets[:positives] = (0.1 + 0.9 * torch.rand(positives, generator=g)).to(
        device
    )
    errors = torch.rand(positives, generator=g).to(device)
    return logits.requires_grad_(), targets, errors


def stable_ap(logits, targets):
    count = int((targets > 0).sum())
    return stable_ap_loss(
        logits[:count], logits[count:], 0.0, tau=1.0, bound=21.0, rho=1.0
    )


OURS = {
    'stable AP': lambda x, t, e: stable_ap(x, t),
    'AP-Loss': lambda x, t, e: ap_loss(x, t),
    'aLRP': lambda x, t, e: sum(alrp_loss(x, t, e)),
    'Rank & Sort': lambda x, t, e: sum(rank_sort_loss(x, t)),
    'DR loss': lambda x, t, e: dr_loss(x, t),
}
LOOPS = {
    'AP-Loss': (1.0, lambda x, t, e: ap_loop(x, t)),
    'aLRP': (1.0, alrp_loop),
    'Rank & Sort': (0.5, lambda x, t, e: rank_sort_loop(x, t)),
}


def step(function, logits, targets, errors):
    logits.grad = None
    function(logits, targets, errors).backward()


def loop_step(name, logits, targets, errors):
    delta, function = LOOPS[name]
    logits = logits.detach()
    relevant = logits >= logits[targets > 0].min() - delta
    function(logits[relevant], targets[relevant], errors)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('--negatives', type=int, default=2_000_000)
    parser.add_argument('--positives', type=int, default=1000)
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--device', choices=['cpu', 'cuda'], default='cpu')
    parser.add_argument(
        '--skip-loops',
        action='store_true',
        help='leave out the loops, which take a minute or more',
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console()

    problem = make_problem(args.positives, args.negatives, args.device)
    steps = {
        'binary cross-entropy': (
            step,
            (
                lambda x, t, e: binary_cross_entropy_with_logits(
                    x, (t > 0).float()
                ),
                *problem,
            ),
        )
    }
    for name, function in OURS.items():
        steps[name] = (step, (function, *problem))
    results = in_turn(steps, args.repeats)
    table = Table(
        'forward + backward',
        'median ms',
        'x cross-entropy',
        'loop, ms',
        'loop / ours',
        title=f'{args.negatives} negatives x {args.positives} positives, '
        f'float32, {args.device}, {args.threads} threads',
    )
    for name, (seconds, ratio) in results.items():
        loop = ['', '']
        if name in LOOPS and not args.skip_loops:
            with console.status(f'{name}: the loop over positives ...'):
                steps = {
                    'ours': (step, (OURS[name], *problem)),
                    'loop': (loop_step, (name, *problem)),
                }
                slow, factor = in_turn(steps, 1)['loop']
            loop = [f'{1e3 * slow:.0f}', f'{factor:.3g}']
        table.add_row(name, f'{1e3 * seconds:.1f}', f'{ratio:.2f}', *loop)
    console.print(table)


if __name__ == '__main__':
    main()
