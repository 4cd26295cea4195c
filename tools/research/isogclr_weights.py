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
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError, show_user_errors
from theory.figures import plot_anchor_weights, plot_two_negatives

#: The paper's two cases: one negative like the anchor, two unlike it.
CASES = ((0.0, -1.0), (-0.5, -0.5))
RHOS = (0.05, 0.2, 0.5)
#: Smallest temperature; it is sought up to WIDEST times the spread of h.
TAU0 = 0.05
WIDEST = 1e4
#: With --features: bound of the divergence, and random samples.
RHO = 0.3
ANCHORS = 200
NEGATIVES = 1000


def optimal_temperature(h: np.ndarray, rho: float, tau0: float) -> float:
    """Minimise ``tau log mean_j exp(h_j / tau) + (tau - tau0) rho``: iSogCLR (ICML 2023), eq. 7."""
    spread = float(np.ptp(h))
    if spread == 0:
        return tau0

    def dual(log_tau: float) -> float:
        tau = np.exp(log_tau)
        value = logsumexp((h - h.max()) / tau) - np.log(len(h))
        return tau * value + tau * rho

    low = np.log(tau0)
    high = np.log(max(tau0, spread) * WIDEST)
    found = minimize_scalar(dual, bounds=(low, high), method='bounded', options={'xatol': 1e-10})
    return tau0 if dual(low) <= found.fun else float(np.exp(found.x))


def optimal_weights(h: np.ndarray, rho: float, tau0: float) -> tuple[np.ndarray, float]:
    """Weights of the negatives, and tau: iSogCLR (ICML 2023), eq. 6 and appendix A."""
    tau = optimal_temperature(h, rho, tau0)
    return softmax(h / tau), tau


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
    chosen = np.random.default_rng(args.seed).permutation(len(rows))
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
            (f'{word} temperature, {name}', weights, tau, softmax(h[place] / common), common)
        )
    return found


@show_user_errors()
def main() -> None:
    parser = tool_parser(__doc__, features=(None, '.npz file of embeddings'), seed=0)
    parser.add_argument('--out-dir', type=Path, default=Path('work_dirs/isogclr_weights'))
    args = parser.parse_args()
    optima = {(h, rho): optimal_weights(np.array(h), rho, TAU0) for h in CASES for rho in RHOS}
    for (h, rho), (weights, tau) in optima.items():
        print(
            f'h {h}, rho {rho:g}: weights {weights[0]:.3f} and {weights[1]:.3f}, '
            f'temperature {tau:.3g}'
        )
    path = args.out_dir / 'two_negatives.png'
    print(f'Wrote {plot_two_negatives(optima, TAU0, path)}')
    if args.features:
        found = anchor_weights(args)
        for name, weights, tau, other, common in found:
            print(
                f'{name}: temperature {tau:.4g}, largest weight {weights.max():.4f}; '
                f'{other.max():.4f} at the common {common:.4g}'
            )
        path = args.out_dir / 'anchor_weights.png'
        print(f'Wrote {plot_anchor_weights(found, path)}')


if __name__ == '__main__':
    sys.exit(main())
