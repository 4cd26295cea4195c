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

from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.pictures.tables import write_table
from theory import figures
from theory.soprc import (
    BIBETA,
    DISTRIBUTIONS,
    BiasSetting,
    bias_rows,
    interpolation_errors,
    score_vector_noise,
)

RATES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
SIZE = 1000
SIZES = (50, 100, 200, 500, 1000, 2000)
# Far below the prior, where average precision errs most.
SIZES_RATE = 0.02
NUMS_SCORES = (20, 40, 80, 160, 320)
MOMENTA = (0.5, 0.1, 0.02)


def sampling_rate_bias(args: argparse.Namespace) -> Path:
    """Figures 1 and 4."""
    setting = BiasSetting()
    by_rate = []
    by_size = []
    for distribution in DISTRIBUTIONS:
        for rows, batches in (
            (by_rate, [(rate, SIZE) for rate in RATES]),
            (by_size, [(SIZES_RATE, size) for size in SIZES]),
        ):
            rows += bias_rows(distribution, batches, args.trials, args.seed, setting)
    header = (
        *('distribution', 'estimator', 'batch size', 'sampling rate'),
        *('population risk', 'mean estimate', 'bias', 's.e.', 'std'),
    )
    write_table(
        header,
        # A composition in both series is reported once.
        [*dict.fromkeys([*by_rate, *by_size])],
        args.out_dir / 'sampling_rate_bias',
        'Bias of AUPRC estimates',
        f'Prior {setting.prior:g}, {args.trials} batches each, seed {args.seed}. The population '
        f'risk is 1 - AUPRC by integration; for SOPRC with its surrogates (tau1 {setting.tau1:g}, '
        f'tau2 {setting.tau2:g}) it is the expectation of that loss.',
    )
    path = args.out_dir / 'sampling_rate_bias.png'
    return figures.plot_sampling_rate_bias(by_rate, by_size, setting.prior, path)


def interpolation_error(args: argparse.Namespace) -> Path:
    """Figures 1c and 5."""
    rows = [
        interpolation_errors(d, n, args.trials, args.seed)
        for d in DISTRIBUTIONS
        for n in NUMS_SCORES
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
    path = args.out_dir / 'interpolation_error.png'
    return figures.plot_interpolation_error(rows, args.trials, args.seed, path)


def score_vector(args: argparse.Namespace) -> Path:
    """Proposition 1."""
    runs = [score_vector_noise(BIBETA, beta, 120, args.trials, args.seed) for beta in MOMENTA]
    header = (
        *('beta', 'steps', 'distance', '(1 - beta)^T'),
        *('variance / variance of phi', 'expected', 'beta / (2 - beta)'),
    )
    rows = [
        (momentum, int(steps[i]), *(float(curve[i]) for curve in curves), largest)
        for momentum, steps, *curves, largest in runs
        for i in (0, 9, 39, 119)
    ]
    write_table(
        header,
        rows,
        args.out_dir / 'score_vector',
        'Mean and variance of the score vector',
        f'{args.trials} vectors of 20 points, batches of 8 positives of the '
        f'bibeta distribution, seed {args.seed}.',
    )
    return figures.plot_score_vector_noise(runs, args.out_dir / 'score_vector.png')


PARTS = {
    # Figure 3.
    'densities': lambda args: figures.plot_densities(args.out_dir / 'densities.png'),
    'score_vector': score_vector,
    'interpolation_error': interpolation_error,
    'sampling_rate_bias': sampling_rate_bias,
}


def main() -> None:
    parser = tool_parser(
        __doc__,
        trials=(200, 'batches of each composition, at least 2'),
        seed=0,
        out_dir=Path('work_dirs/soprc_simulation'),
    )
    parts = dict(nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--only', help='parts to write (default: all)', **parts)
    args = parse_at_least(parser, trials=2)
    # Small tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    for name in args.only:
        print(f'Wrote {PARTS[name](args)}', flush=True)


if __name__ == '__main__':
    main()
