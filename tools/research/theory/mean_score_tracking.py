"""How well the mean positive score is tracked while the model moves.

Runs the state that training uses, stable AP (2025), eq. 6, on scores that drift by the same amount
at every step and then stop.
"""

from dataclasses import dataclass

import torch

from mmrank.state import MeanPositiveScore


@dataclass(frozen=True)
class TrackingError:
    """Error of the estimates of mu, estimate minus true mean.

    Attributes:
        drift: (K,) change of the true mean at every step.
        error: (K, trials) by mode.
        lag: ``(1 - lam)/lam`` times the drift: where plain EMA ends up below
            a mean that drifts for ever.
        noise: Standard deviation ``sigma/sqrt(n) sqrt(lam/(2 - lam))`` that both modes settle at.
    """

    drift: torch.Tensor
    error: dict[str, torch.Tensor]
    lag: float
    noise: float


def mean_score_tracking(
    steps: int,
    trials: int,
    seed: int,
    momentum: float = 0.01,
    drift: float = 0.001,
    sigma: float = 0.2,
    num_pos: int = 16,
) -> TrackingError:
    """Track a mean that drifts for two thirds of the steps.

    Args:
        steps: Steps K.
        trials: Means tracked side by side, each a row of the state.
        seed: Of the noise.
        momentum: lam in (0, 1].
        drift: Change of the mean positive score at a step.
        sigma: Standard deviation of a positive's score.
        num_pos: Positives of a batch.

    Returns:
        The errors of both modes on the same batches.
    """
    g = torch.Generator().manual_seed(seed)
    states = {mode: MeanPositiveScore(trials, momentum, mode) for mode in ('exact', 'plain')}
    mask = torch.ones(trials, num_pos, dtype=torch.bool)
    moves = torch.full((steps,), drift, dtype=torch.float64)
    moves[2 * steps // 3 :] = 0
    error = {mode: [] for mode in states}
    mean = 0.0
    for move in moves.tolist():
        mean += move
        noise = torch.randn(trials, num_pos, generator=g, dtype=torch.float64)
        now = mean + sigma * noise
        for mode, state in states.items():
            if mode == 'exact':
                # The same batch under the previous weights.
                with state.probing():
                    state.update(now - move, mask)
            error[mode].append(state.update(now, mask).double() - mean)
    return TrackingError(
        drift=moves,
        error={mode: torch.stack(rows) for mode, rows in error.items()},
        lag=(1 - momentum) / momentum * drift,
        noise=sigma / num_pos**0.5 * (momentum / (2 - momentum)) ** 0.5,
    )
