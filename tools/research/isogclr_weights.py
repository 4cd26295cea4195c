"""Which weights iSogCLR gives to negatives, as figures.

    python tools/research/isogclr_weights.py
    python tools/research/isogclr_weights.py --features features.npz

Written to the out dir: two_negatives.png, contours of the loss over the weights of two negatives
with the optimum at several rho (figure 2 of the paper). With --features, a file of
RetrievalMetric(out_file='features.npz'), anchor_weights.png: the weights of 1,000 random negatives
of the anchors with the largest and smallest best temperature, compared with the weights at the mean
one (figure 3).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy.special import softmax

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError, show_user_errors
from theory.robust_contrastive import (
    optimal_temperature,
    optimal_weights,
    plot_anchor_weights,
    plot_two_negatives,
)

#: The paper's two cases: one negative like the anchor, two unlike it.
CASES = ((0.0, -1.0), (-0.5, -0.5))
RHOS = (0.05, 0.2, 0.5)
#: Smallest temperature, and with --features bound of the divergence and random samples.
TAU0, RHO, ANCHORS, NEGATIVES = 0.05, 0.3, 200, 1000


def parse_args() -> argparse.Namespace:
    parser = tool_parser(__doc__, features=(None, '.npz file of embeddings'), seed=0)
    parser.add_argument('--out-dir', type=Path, default=Path('work_dirs/isogclr_weights'))
    return parser.parse_args()


def anchor_weights(args: argparse.Namespace) -> list:
    """Weights of the anchors with the extreme temperatures; the positive of each is itself."""
    from mmrank.evaluation.retrieval_features import load_features

    samples = load_features(args.features)
    rows = samples.features.double().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if len(rows) <= NEGATIVES:
        raise UserError(
            f'{args.features} has {len(rows)} samples. Fix: features of more than {NEGATIVES}'
        )
    rng = np.random.default_rng(args.seed)
    chosen = rng.permutation(len(rows))
    negatives = rows[chosen[:NEGATIVES]]
    anchors = chosen[NEGATIVES:][:ANCHORS]
    h = rows[anchors] @ negatives.T - 1
    best = np.array([optimal_temperature(x, RHO, TAU0) for x in h])
    common = float(best.mean())
    found = []
    for word, place in (('largest', best.argmax()), ('smallest', best.argmin())):
        weights, tau = optimal_weights(h[place], RHO, TAU0)
        label = int(samples.labels[anchors[place]])
        name = samples.classes[label] if samples.classes else f'class {label}'
        found.append(
            (f'{word} temperature, {name}', *(weights, tau, softmax(h[place] / common), common))
        )
    return found


@show_user_errors()
def main() -> int:
    args = parse_args()
    for h in CASES:
        for rho in RHOS:
            weights, tau = optimal_weights(np.array(h), rho, TAU0)
            print(
                f'h {h}, rho {rho:g}: weights {weights[0]:.3f} and '
                f'{weights[1]:.3f}, temperature {tau:.3g}'
            )
    path = args.out_dir / 'two_negatives.png'
    print(f'Wrote {plot_two_negatives(CASES, RHOS, TAU0, path)}')
    if args.features:
        found = anchor_weights(args)
        for name, weights, tau, other, common in found:
            print(
                f'{name}: temperature {tau:.4g}, largest weight {weights.max():.4f}; '
                f'{other.max():.4f} at the common {common:.4g}'
            )
        path = args.out_dir / 'anchor_weights.png'
        print(f'Wrote {plot_anchor_weights(found, path)}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
