"""Speed and error of the exact pairwise sum, compared with its baselines.

    python tools/benchmarks/pairwise_speed.py
    python tools/benchmarks/pairwise_speed.py --skip-pairwise --repeats 21
    python tools/benchmarks/pairwise_speed.py --negatives 200000 --device cuda

Timed in turn is forward + backward of binary cross-entropy on the negatives, of stable AP with few
and with many positives, and of the sum over the pair matrix in plain PyTorch, float32, in blocks.
"""

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import binary_cross_entropy_with_logits

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.losses import RankedLists
from mmrank.losses.ranking.stable_ap import stable_ap_outer, weighted_risk

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.timing import in_turn

TAU = 1.0
POSITIVES = 500
MANY_POSITIVES = 8000
THREADS = 2
#: Negatives for the comparison with the float64 pair matrix.
ERROR_NEGATIVES = 100_000
PAIRS_PER_BLOCK = 2**24


def make_scores(kind, positives, negatives, device):
    """Positives and negatives of one kind of score distribution."""
    g = torch.Generator().manual_seed(0)
    pos = torch.randn(positives, generator=g)
    neg = torch.randn(negatives, generator=g) - 1
    if kind == 'tied':
        pos, neg = (pos * 2).round() / 2, (neg * 2).round() / 2
    elif kind == 'sorted':
        pos, neg = pos.sort().values, neg.sort().values
    elif kind == 'huge':
        pos, neg = (1e4 * x.clamp(-1, 1) for x in (pos, neg))
    elif kind == 'tiny range':
        pos, neg = 1e-4 * pos, 1e-4 * neg
    return pos.to(device), neg.to(device)


def step_bce(pos, neg):
    neg.grad = None
    binary_cross_entropy_with_logits(neg, torch.zeros_like(neg)).backward()


def step_ours(pos, neg):
    pos.grad = neg.grad = None
    pos_mask, is_negative = (torch.ones_like(x, dtype=torch.bool)[None] for x in (pos, neg))
    lists = RankedLists(pos[None], pos_mask, neg[None], ~is_negative, is_negative)
    risk = weighted_risk(lists, 0.0, OneSidedHuber(TAU), 21.0, 0.1, 2.0, 'normalised').risk
    stable_ap_outer(risk, 0.1).sum().backward()


def one_sided_huber(x, tau):
    """The surrogate by operations that autograd derives."""
    z = 1 - x / tau
    return torch.where(x < 0, 2 * z - 1, z.clamp(min=0).square())


def step_pairwise(pos, neg):
    """Weighted mean over all pairs by autograd, in blocks; no outer h."""
    pos.grad = neg.grad = None
    size = max(PAIRS_PER_BLOCK // pos.numel(), 1)
    scale = 1 / (pos.numel() * neg.numel())
    for begin in range(0, neg.numel(), size):
        x = pos[:, None] - neg[None, begin : begin + size]
        (one_sided_huber(x, TAU).sum() * scale).backward()


class OfPairs(OneSidedHuber):
    """It is summed by the matrix of pairs, as every surrogate but the one-sided Huber itself."""


def errors(kind, device):
    """Largest relative error of the sums and both gradients."""
    results = []
    for dtype, surrogate in ((torch.float32, OneSidedHuber(TAU)), (torch.float64, OfPairs(TAU))):
        pos, neg = make_scores(kind, POSITIVES, ERROR_NEGATIVES, device)
        pos, neg = pos.to(dtype), neg.to(dtype)
        pos.requires_grad_()
        neg.requires_grad_()
        total = pairwise_surrogate_sum(pos[None], neg[None], surrogate)
        weight = torch.linspace(1, 2, POSITIVES, dtype=torch.float64, device=device)
        (total * weight).sum().backward()
        results.append((total.detach(), pos.grad, neg.grad))
    return [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in zip(*results)]


def main():
    args = tool_parser(
        __doc__,
        negatives=3_500_000,
        repeats=11,
        device='cpu',
        skip_pairwise=(False, 'leave out the pair matrix, which takes minutes'),
    ).parse_args()
    torch.set_num_threads(THREADS)
    console = Console()

    def leaves(positives):
        pair = make_scores('random', positives, args.negatives, args.device)
        return tuple(x.requires_grad_() for x in pair)

    few = leaves(POSITIVES)
    many = leaves(MANY_POSITIVES)
    names = (
        'binary cross-entropy',
        f'stable AP, {POSITIVES} positives',
        f'stable AP, {MANY_POSITIVES} positives',
    )
    results = in_turn(
        dict(zip(names, [(step_bce, few), (step_ours, few), (step_ours, many)])), args.repeats
    )
    base = results[names[1]][0]
    table = Table(
        'forward + backward',
        'median ms',
        'x cross-entropy',
        'x stable AP',
        title=f'{args.negatives} negatives, float32, {args.device}, '
        f'{THREADS} threads, {args.repeats} repeats in turn',
    )
    for name, (seconds, ratio) in results.items():
        table.add_row(name, f'{1e3 * seconds:.1f}', f'{ratio:.2f}', f'{seconds / base:.2f}')
    if not args.skip_pairwise:
        with console.status('the pair matrix, in blocks ...'):
            steps = {'ours': (step_ours, few), 'all': (step_pairwise, few)}
            seconds, factor = in_turn(steps, 1)['all']
        table.add_row(
            f'pair matrix, {POSITIVES} positives',
            f'{1e3 * seconds:.0f}',
            f'{seconds / results[names[0]][0]:.0f}',
            f'{factor:.0f}',
        )
    console.print(table)

    table = Table(
        'scores',
        'sums',
        'gradient of positives',
        'gradient of negatives',
        title='largest error relative to the largest entry, against '
        f'the float64 pair matrix, {POSITIVES} x {ERROR_NEGATIVES}',
    )
    for kind in ('random', 'tied', 'sorted', 'huge', 'tiny range'):
        found = errors(kind, args.device)
        table.add_row(kind, *(f'{e:.1e}' for e in found))
    console.print(table)


if __name__ == '__main__':
    main()
