"""Mean and variance of the score vector v over the steps it takes.

Simulates proposition 1 of SOPRC (NeurIPS 2022) on the state that training uses.
"""

from dataclasses import dataclass

import numpy as np
import torch

from mmrank.state.score_vector import ScoreVector
from research.theory.score_distributions import ScoreDistribution


@dataclass(frozen=True)
class ScoreVectorNoise:
    """What became of v that began at a wrong value.

    Attributes:
        momentum: beta.
        steps: (K,) numbers of steps T, ascending.
        distance: (K,) mean distance of v from the mean phi, over that at the start; proposition 1
            says ``(1 - beta)^T``.
        variance: (K,) variance of v over that of phi; proposition 1 says at most ``beta/(2 -
            beta)``.
    """

    momentum: float
    steps: np.ndarray
    distance: np.ndarray
    variance: np.ndarray

    @property
    def expected_distance(self) -> np.ndarray:
        """``(1 - beta)^T``."""
        return (1 - self.momentum) ** self.steps

    @property
    def expected_variance(self) -> np.ndarray:
        """``beta (1 - (1 - beta)^2T)/(2 - beta)``, from eq. 21."""
        return self.largest_variance * (1 - (1 - self.momentum) ** (2 * self.steps))

    @property
    def largest_variance(self) -> float:
        """``beta/(2 - beta)``."""
        return self.momentum / (2 - self.momentum)


def score_vector_noise(
    distribution: ScoreDistribution,
    momentum: float,
    steps: int,
    trials: int,
    seed: int,
    num_pos: int = 8,
    length: int = 20,
    offset: float = 1.0,
) -> ScoreVectorNoise:
    """Run many score vectors side by side under a frozen model.

    Args:
        distribution: The scores.
        momentum: beta in (0, 1].
        steps: Steps T, >= 1.
        trials: Vectors; each is a row of one :class:`ScoreVector`.
        seed: Of the batches.
        num_pos: Positives of a batch.
        length: Points of v.
        offset: How far v begins above the mean phi.

    Returns:
        Distance and variance after every step.
    """
    rng = np.random.default_rng([seed, num_pos])

    def batch(rows):
        pos = distribution.sample_positives(rows, num_pos, rng)
        return pos, torch.ones_like(pos, dtype=torch.bool)

    phi = ScoreVector(20 * trials, length, mode='off', score_range=distribution.score_range).update(
        *batch(20 * trials)
    )
    phi_mean, phi_variance = phi.double().mean(0), phi.double().var(0)
    state = ScoreVector(trials, length, momentum, score_range=distribution.score_range)
    state.vector.copy_(phi_mean + offset)
    # A row that was never seen would be set by its first batch.
    state.num_updates.fill_(1)
    distance, variance = [], []
    for _ in range(steps):
        v = state.update(*batch(trials)).double()
        distance.append((v.mean(0) - phi_mean).mean().item() / offset)
        variance.append((v.var(0) / phi_variance).mean().item())
    return ScoreVectorNoise(
        momentum=momentum,
        steps=np.arange(1, steps + 1),
        distance=np.array(distance),
        variance=np.array(variance),
    )
