"""Check the bounds of stable AP (2025) and show how tight they are.

    python tools/research/stable_ap_bounds.py
    python tools/research/stable_ap_bounds.py --trials 500 --out-dir x

Exits with 1 if a bound does not hold. Written are, each as PNG, Markdown and CSV:

    theorem1             both inequalities on random lists and on lists searched for
    bounded_difference   largest change of the loss when one sample is replaced, lemma 1
    mean_score_tracking  error of the tracked mean positive score, eq. 6 against plain EMA
"""

import argparse
import sys
from pathlib import Path

import torch

from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.pictures.tables import write_table
from theory.figures import plot_bounded_difference, plot_mean_score_tracking, plot_theorem1
from theory.stable_ap import (
    DifferenceSetting,
    bound_row,
    difference_rows,
    mean_score_tracking,
    random_scores,
    theorem1_sides,
    weight_sum_row,
)

RHOS = (0.5, 1.0, 10.0, 100.0)
NUMS_POS = (2, 8, 32)
RHO_BOUNDS = (0.1, 1.0, 10.0)
NUMS_WEIGHTS = tuple(2**k for k in range(1, 15))
NUMS_SAMPLES = (8, 32, 128, 512, 2048)
SETTINGS = {
    'training weights': DifferenceSetting(),
    'mild weights': DifferenceSetting(tau=1.0, a=1.0, t=1.0),
    'printed weights': DifferenceSetting(weights='printed'),
}
STEPS = 900
# Rounding of float64 sums.
SLACK = 1e-9


def theorem1(args: argparse.Namespace) -> tuple[Path, float]:
    """Theorem 1; the largest ratio that should be at most 1."""
    rows = [bound_row(rho, n, args.trials, args.seed) for rho in RHOS for n in NUMS_POS]
    header = (
        *('rho', 'n+', 'risk ratio, random', 'risk ratio, searched'),
        *('bound ratio, random', 'bound ratio, searched'),
    )
    write_table(
        header,
        rows,
        args.out_dir / 'theorem1',
        'Largest ratios in theorem 1',
        f'Cosine scores, tau 0.5, eps 0.001, {args.trials} lists each, seed '
        f'{args.seed}; theorem 1 says at most 1. Risk ratio: (1 - AP) / '
        'surrogate risk (eq. 2); bound ratio: surrogate risk / (q/2 h).',
    )
    weights = [weight_sum_row(rho, n) for rho in RHO_BOUNDS for n in NUMS_WEIGHTS]
    write_table(
        ('rho B', 'n+', 'mean weight', 'q/2', 'mean 1/r'),
        weights,
        args.out_dir / 'theorem1_weights',
        'Mean weights of theorem 1',
        'Lemma 3 says 1 <= mean weight <= q/2; the mean of 1/r has no bound.',
    )
    g = torch.Generator().manual_seed(args.seed)
    lists = random_scores(400, 20, g), random_scores(400, 20, g)
    path = plot_theorem1(
        theorem1_sides(*lists, tau=0.5, eps=0.1), rows, weights, args.out_dir / 'theorem1.png'
    )
    ratios = [max(r.worst_risk, r.worst_bound) for r in rows]
    ratios += [max(1 / w.mean_weight, w.mean_weight / w.upper) for w in weights]
    return path, max(ratios)


def bounded_difference(args: argparse.Namespace) -> tuple[Path, float]:
    """Lemma 1; the largest change over its limit."""
    runs = {
        name: [
            row for n in NUMS_SAMPLES for row in difference_rows(n, args.trials, args.seed, setting)
        ]
        for name, setting in SETTINGS.items()
    }
    header = (
        *('weights', 'replaced', 'n', 'lemma 1', 'stable AP, worst'),
        *('worst / lemma 1', 'stable AP, random', '1 - AP, worst'),
    )
    table = [(name, *row) for name, rows in runs.items() for row in rows]
    notes = '; '.join(
        f'{name}: tau {s.tau:g}, a {s.a:g}, t {s.t:g}, B {s.bound:g}, Bw {s.largest_weight:g}'
        for name, s in SETTINGS.items()
    )
    write_table(
        header,
        table,
        args.out_dir / 'bounded_difference',
        'Largest change when one sample is replaced',
        f'Cosine scores, rho 1, eps 0.1; {notes}. Lemma 1 says rho B Bw / (eps n) for printed '
        'weights; for weights of mean 1 it becomes rho B / (2 eps n) for a negative and rho B Bw '
        '/ (2 eps (n - 1 + Bw)) for a positive.',
    )
    path = plot_bounded_difference(
        runs, DifferenceSetting().eps, args.out_dir / 'bounded_difference.png'
    )
    return path, max(row.share for rows in runs.values() for row in rows)


def mean_score(args: argparse.Namespace) -> tuple[Path, float]:
    """Eq. 6; nothing here has an upper bound to exceed."""
    tracking = mean_score_tracking(STEPS, args.trials, args.seed)
    stop = 2 * STEPS // 3
    rows = []
    for mode, lag in (('exact', 0.0), ('plain', -tracking.lag)):
        frozen = 'frozen for 300 steps', -1, lag * 0.99 ** (STEPS - stop)
        for when, step, expected in (('end of the drift', stop - 1, lag), frozen):
            error = tracking.error[mode][step]
            figures = error.mean().item(), error.std().item(), expected, tracking.noise
            rows.append((mode, when, *figures))
    write_table(
        ('mode', 'weights', 'error', 'std', 'expected error', 'expected std'),
        rows,
        args.out_dir / 'mean_score_tracking',
        'Error of the tracked mean positive score',
        f'lam 0.01, drift 0.001 a step for {stop} steps, 16 positives of standard deviation 0.2 a '
        f'batch, {args.trials} runs, seed {args.seed}.',
    )
    path = args.out_dir / 'mean_score_tracking.png'
    return plot_mean_score_tracking(tracking, path), 0.0


def main() -> int:
    parser = tool_parser(
        __doc__,
        trials=(100, 'random lists of each size'),
        seed=0,
        out_dir=Path('work_dirs/stable_ap_bounds'),
    )
    args = parse_at_least(parser, trials=2)
    # Small tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    largest = 0.0
    for part in (mean_score, theorem1, bounded_difference):
        path, ratio = part(args)
        largest = max(largest, ratio)
        print(f'Wrote {path}', flush=True)
    holds = largest <= 1 + SLACK
    print(f'Largest quantity over its bound: {largest:.6f}')
    if not holds:
        print('error: a bound does not hold', file=sys.stderr)
    return 0 if holds else 1


if __name__ == '__main__':
    sys.exit(main())
