"""Which weights iSogCLR gives to two negatives: figure 2 of the paper.

    python tools/research/isogclr_weights.py

Written to the out dir: two_negatives.png, contours of the loss over the weights with the optimum at
several rho.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors
from theory.figures import plot_two_negatives

#: The paper's two cases: one negative like the anchor, two unlike it.
CASES = ((0.0, -1.0), (-0.5, -0.5))
RHOS = (0.05, 0.2, 0.5)
#: Smallest temperature; it is sought up to WIDEST times the spread of h.
TAU0 = 0.05
WIDEST = 1e4


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


@show_user_errors()
def main() -> None:
    args = tool_parser(__doc__, out_dir=Path('work_dirs/isogclr_weights')).parse_args()
    optima = {}
    for h, rho in itertools.product(CASES, RHOS):
        tau = optimal_temperature(np.array(h), rho, TAU0)
        # Eq. 6 and appendix A.
        weights = softmax(np.array(h) / tau)
        optima[h, rho] = weights, tau
        print(
            f'h {h}, rho {rho:g}: weights {weights[0]:.3f} and {weights[1]:.3f}, '
            f'temperature {tau:.3g}'
        )
    path = args.out_dir / 'two_negatives.png'
    print(f'Wrote {plot_two_negatives(optima, TAU0, path)}')


if __name__ == '__main__':
    sys.exit(main())
