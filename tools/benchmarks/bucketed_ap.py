"""Compare AP-Loss with its bucketed form: CPU time, and error of the gradient.

    python tools/benchmarks/bucketed_ap.py

Bucketed ranking losses (Yavuz et al., ECCV 2024) put the negatives between two positives into one
bucket at its mean score, so that P positives meet P + 1 buckets in place of N negatives. That is
exact for a step at a score (delta 0); for a step of the width 2 delta, which these losses have, it
rounds. mmrank sums the same pairs exactly for every delta. Made-up logits: negatives N(-4, 1),
positives N(-1, 1.5).
"""

import sys
from functools import partial
from statistics import median

import torch
from rich.console import Console
from torch import Tensor

from mmrank.cli.options import tool_parser
from mmrank.functional import ap_loss
from mmrank.pictures.tables import console_table
from timing import both_times_in_turn, machine, median_ratio

SIZES = ((20_000, 200), (200_000, 1_000), (1_000_000, 1_000), (1_000_000, 5_000))
DELTAS = (1e-6, 0.5, 1.0)


def bucketed_ap_loss(logits: Tensor, is_positive: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Mean of ``N_FP / rank`` over the positives, and its update of (N,) logits.

    Source: Yavuz et al., section 4: buckets, errors, and the share of a negative.
    """

    def is_above(scores: Tensor) -> Tensor:
        return ((scores[:, None] - positives) / (2 * delta) + 0.5).clamp(0, 1)

    scores, order = logits.sort(descending=True)
    mask = is_positive[order]
    positives = scores[mask]
    relevant = ~mask & (scores >= positives[-1] - delta)
    bucket = mask.cumsum(0)[relevant]
    size = bucket.bincount(minlength=len(positives) + 1).to(logits)
    total = torch.zeros_like(size).index_add(0, bucket, scores[relevant])
    above = is_above(total / size.clamp(min=1)) * size[:, None]
    false_positives = above.sum(0)
    error = false_positives / (is_above(positives).sum(0) + 0.5 + false_positives)
    spread = torch.where(false_positives > 0, error / false_positives, 0)
    update = torch.zeros_like(logits)
    update[order[relevant]] = (above @ spread / size.clamp(min=1))[bucket]
    update[order[mask]] = -error
    return error.mean(), update / len(positives)


def exact_ap_loss(logits: Tensor, is_positive: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """The same by :func:`mmrank.functional.ap_loss`."""
    logits = logits.detach().requires_grad_()
    loss = ap_loss(logits, is_positive, delta=delta, interpolate=False)
    (update,) = torch.autograd.grad(loss, logits)
    return loss.detach(), update


def make_logits(negatives: int, positives: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    low = torch.randn(negatives, generator=generator) - 4
    high = torch.randn(positives, generator=generator) * 1.5 - 1
    return torch.cat([high, low]), torch.arange(positives + negatives) < positives


def main() -> int:
    parser = tool_parser(__doc__, repeats=(5, 'turns; the table has medians'))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size in SIZES:
        for delta in DELTAS:
            given = (*make_logits(*size), delta)
            steps = {'exact': partial(exact_ap_loss, *given)}
            steps['bucketed'] = partial(bucketed_ap_loss, *given)
            exact, bucketed = (x.cpu for x in both_times_in_turn(steps, args.repeats).values())
            times = f'{1000 * median(exact):.0f}', f'{median_ratio(bucketed, exact):.2f}'
            (loss, exact), (other, update) = exact_ap_loss(*given), bucketed_ap_loss(*given)
            difference = (update - exact).norm() / exact.norm()
            rows.append(
                [
                    f'{size[0]:,} + {size[1]:,}',
                    f'{delta:g}',
                    *times,
                    f'{loss:.4f}',
                    f'{abs(other - loss):.0e}',
                    f'{difference:.1e}',
                ]
            )
    header = ['logits', 'delta', 'exact, ms', 'bucketed / exact', 'loss', 'error', 'of gradient']
    Console().print(console_table(header, rows, title=machine()))
    return 0


if __name__ == '__main__':
    sys.exit(main())
