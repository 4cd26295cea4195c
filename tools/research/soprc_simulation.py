"""Reproduce the simulations of SOPRC (NeurIPS 2022) as figures and tables.

    python tools/research/soprc_simulation.py
    python tools/research/soprc_simulation.py --trials 500 --out-dir x
    python tools/research/soprc_simulation.py --only densities

Scores come from pairs of distributions whose AUPRC is known. Written are, as PNG, Markdown and CSV:

    sampling_rate_bias   bias of AUPRC estimates, figures 1 and 4, proposition 2
    interpolation_error  error of the interpolated scores, figures 1c and 5, proposition 3
    score_vector         mean and variance of v by steps, proposition 1
    densities            densities of the scores, figure 3, PNG alone
"""

import argparse
from pathlib import Path

import torch
from rich.progress import Progress

from mmrank.apis.common.command_line import parse_at_least, tool_parser
from mmrank.apis.common.tables import write_table
from theory.soprc import BIBETA, DISTRIBUTIONS, ESTIMATORS, BiasSetting, bias_rows
from theory.soprc_plots import (
    plot_densities,
    plot_interpolation_error,
    plot_sampling_rate_bias,
    plot_score_vector_noise,
)
from theory.soprc_scores import interpolation_errors, score_vector_noise

RATES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
SIZE = 1000
SIZES = (50, 100, 200, 500, 1000, 2000)
# Far below the prior, where average precision errs most.
SIZES_RATE = 0.02
NUMS_SCORES = (20, 40, 80, 160, 320)
MOMENTA = (0.5, 0.1, 0.02)


def parse_args() -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        trials=(200, 'batches of each composition, at least 2'),
        seed=0,
        prior=(0.1, 'share of the positives in the population'),
    )
    parser.add_argument('--out-dir', type=Path, default=Path('work_dirs/soprc_simulation'))
    parts = dict(nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--only', help='parts to write (default: all)', **parts)
    args = parse_at_least(parser, trials=2)
    if not 0 < args.prior < 1:
        parser.error(f'--prior must be in (0, 1), got {args.prior}')
    return args


def sampling_rate_bias(args: argparse.Namespace, progress: Progress) -> Path:
    """Figures 1 and 4."""
    setting = BiasSetting(prior=args.prior)
    by_rate, by_size = [], []
    series = (
        (by_rate, [(rate, SIZE) for rate in RATES]),
        (by_size, [(SIZES_RATE, size) for size in SIZES]),
    )
    task = progress.add_task(
        'bias by sampling rate', total=len(DISTRIBUTIONS) * (len(RATES) + len(SIZES))
    )
    for distribution in DISTRIBUTIONS:
        for rows, batches in series:
            for row in bias_rows(distribution, batches, args.trials, args.seed, setting):
                rows.append(row)
                # Every composition has a row for each estimator.
                progress.advance(task, 1 / len(ESTIMATORS))
    header = (
        *('distribution', 'estimator', 'batch size', 'sampling rate'),
        *('population risk', 'mean estimate', 'bias', 's.e.', 'std'),
    )
    # A composition in both series is reported once.
    rows = dict.fromkeys(
        (
            *(r.distribution, r.estimator, r.batch_size, r.sampling_rate),
            *(r.truth, r.mean, r.bias, r.standard_error, r.std),
        )
        for r in (*by_rate, *by_size)
    )
    write_table(
        header,
        list(rows),
        args.out_dir / 'sampling_rate_bias',
        'Bias of AUPRC estimates',
        f'Prior {args.prior:g}, {args.trials} batches each, seed {args.seed}. The population risk '
        f'is 1 - AUPRC by integration; for SOPRC with its surrogates (tau1 {setting.tau1:g}, tau2 '
        f'{setting.tau2:g}) it is the expectation of that loss.',
    )
    return plot_sampling_rate_bias(
        by_rate, by_size, args.prior, args.out_dir / 'sampling_rate_bias.png'
    )


def interpolation_error(args: argparse.Namespace, progress: Progress) -> Path:
    """Figures 1c and 5."""
    cases = [(d, n) for d in DISTRIBUTIONS for n in NUMS_SCORES]
    rows = [
        interpolation_errors(d, n, args.trials, args.seed)
        for d, n in progress.track(cases, description='interpolation error')
    ]
    header = (
        *('distribution', 'scores', 'error', "max|p''|/(8 n^2)"),
        *('largest error / local bound', 'error of E phi', 'std of one phi'),
    )
    write_table(
        header,
        rows,
        args.out_dir / 'interpolation_error',
        'Error of the interpolated scores',
        'Largest errors on the quantiles 0.1 to 0.9: of phi of scores at the quantiles i/n, which '
        'proposition 3 bounds, and of the expected phi of random scores. The std is that of '
        f'{args.trials} random batches, seed {args.seed}.',
    )
    return plot_interpolation_error(
        rows, args.trials, args.seed, args.out_dir / 'interpolation_error.png'
    )


def score_vector(args: argparse.Namespace, progress: Progress) -> Path:
    """Proposition 1."""
    runs = [
        score_vector_noise(BIBETA, momentum, 120, args.trials, args.seed)
        for momentum in progress.track(MOMENTA, description='score vector')
    ]
    header = (
        *('beta', 'steps', 'distance', '(1 - beta)^T'),
        *('variance / variance of phi', 'expected', 'beta / (2 - beta)'),
    )
    rows = []
    for run in runs:
        curves = run.distance, run.expected_distance, run.variance, run.expected_variance
        for i in (0, 9, 39, 119):
            figures = (float(curve[i]) for curve in curves)
            rows.append((run.momentum, int(run.steps[i]), *figures, run.largest_variance))
    write_table(
        header,
        rows,
        args.out_dir / 'score_vector',
        'Mean and variance of the score vector',
        f'{args.trials} vectors of 20 points, batches of 8 positives of the '
        f'bibeta distribution, seed {args.seed}.',
    )
    return plot_score_vector_noise(runs, args.out_dir / 'score_vector.png')


def densities(args: argparse.Namespace, progress: Progress) -> Path:
    """Figure 3."""
    del progress
    return plot_densities(args.out_dir / 'densities.png')


PARTS = {
    'densities': densities,
    'score_vector': score_vector,
    'interpolation_error': interpolation_error,
    'sampling_rate_bias': sampling_rate_bias,
}


def main() -> None:
    args = parse_args()
    # Small tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    with Progress() as progress:
        for name in args.only:
            path = PARTS[name](args, progress)
            progress.console.print(f'Wrote {path}', highlight=False)


if __name__ == '__main__':
    main()
