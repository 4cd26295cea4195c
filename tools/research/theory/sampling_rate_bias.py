"""Bias of AUPRC estimates when a batch oversamples one of the classes.

The simulation of SOPRC (NeurIPS 2022), figures 1 and 4, appendix B.2, for
its proposition 2. Batches are drawn from the distributions themselves, not from 100,000 points
drawn once: the AUPRC is then known by integration.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from mmrank.functional import OneSidedHuber, interpolate_scores
from mmrank.losses.ranking.soprc import soprc_terms
from mmrank.losses.score_lists import split_lists
from research.theory.ap_risk import ZeroOne, ap_risk, lists_of
from research.theory.score_distributions import (
    ScoreDistribution,
    population_auprc,
    population_soprc_risk,
)

AVERAGE_PRECISION = 'average precision'
SOPRC = 'SOPRC'
SOPRC_WITHOUT_V = 'SOPRC without v'
SOPRC_SURROGATES = 'SOPRC with surrogates'
ESTIMATORS = (AVERAGE_PRECISION, SOPRC, SOPRC_WITHOUT_V, SOPRC_SURROGATES)
# Below any difference of two scores: l2 is then l01.
_SHARP = 1e-9


@dataclass(frozen=True)
class BiasSetting:
    """What the estimators are run with.

    Attributes:
        prior: Share pi of the positives in the population.
        length: Points V of the score vector v.
        momentum: Weight beta of a new batch in v.
        past_batches: Batches that v saw before the one that is estimated.
        tau1: Margin of l1, for :data:`SOPRC_SURROGATES`.
        tau2: Temperature of l2, likewise.
    """

    prior: float = 0.1
    length: int = 500
    momentum: float = 0.1
    past_batches: int = 30
    tau1: float = 0.1
    tau2: float = 0.001


@dataclass(frozen=True)
class BiasRow:
    """Estimates of one risk over many batches of one composition.

    Attributes:
        distribution: Name of the score distribution.
        estimator: Name of the estimator.
        batch_size: Scores of a batch.
        sampling_rate: Share pi0 of the positives in a batch.
        truth: Population value of the risk that is estimated.
        mean: Mean estimate.
        std: Standard deviation of one estimate.
        trials: Number of batches.
    """

    distribution: str
    estimator: str
    batch_size: int
    sampling_rate: float
    truth: float
    mean: float
    std: float
    trials: int

    @property
    def bias(self) -> float:
        """Mean estimate minus the population value."""
        return self.mean - self.truth

    @property
    def standard_error(self) -> float:
        """Standard error of :attr:`mean` and of :attr:`bias`."""
        return self.std / self.trials**0.5


def moving_score_vector(
    distribution: ScoreDistribution,
    num_pos: int,
    trials: int,
    rng: np.random.Generator,
    setting: BiasSetting,
) -> Tensor:
    """Score vector v of every trial after ``past_batches`` batches.

    The first batch sets it, as in :class:`mmrank.state.ScoreVector`; here it is kept in float64.
    Source: SOPRC (NeurIPS 2022), eq. 10.

    Returns:
        (trials, length) vectors.
    """
    vector = None
    for _ in range(setting.past_batches):
        pos = distribution.sample_positives(trials, num_pos, rng)
        phi = _interpolated(distribution, pos, setting.length)
        if vector is None:
            vector = phi
        else:
            vector.lerp_(phi, setting.momentum)
    return vector


def _interpolated(distribution, pos: Tensor, length: int) -> Tensor:
    return interpolate_scores(pos, length, *distribution.score_range)


def estimate_risks(
    distribution: ScoreDistribution,
    num_pos: int,
    num_neg: int,
    trials: int,
    rng: np.random.Generator,
    setting: BiasSetting,
) -> dict[str, Tensor]:
    """Estimate the risk from ``trials`` batches in four ways.

    Args:
        distribution: The scores.
        num_pos: Positives of a batch, >= 1.
        num_neg: Negatives of a batch, >= 1.
        trials: Number of batches.
        rng: Source of all that is random.
        setting: Of the estimators.

    Returns:
        (trials,) risks by name of the estimator: average precision of the batch; SOPRC with l01 in
        place of both surrogates; the same with
        the batch's own phi as v; SOPRC as it is trained.
    """
    vector = moving_score_vector(distribution, num_pos, trials, rng, setting)
    pos, neg = distribution.sample(trials, num_pos, num_neg, rng)
    own = _interpolated(distribution, pos, setting.length)
    # Eq. 10: v takes in the batch before the loss is computed.
    vector = vector.lerp(own, setting.momentum)

    lists = split_lists(*lists_of(pos, neg))

    def soprc(v, surrogate, tau2):
        return soprc_terms(lists, v, setting.prior, surrogate, tau2).loss

    huber = OneSidedHuber(setting.tau1)
    return {
        AVERAGE_PRECISION: ap_risk(pos, neg),
        SOPRC: soprc(vector, ZeroOne(), _SHARP),
        SOPRC_WITHOUT_V: soprc(own, ZeroOne(), _SHARP),
        SOPRC_SURROGATES: soprc(vector, huber, setting.tau2),
    }


def bias_rows(
    distribution: ScoreDistribution,
    batches: Iterable[tuple[float, int]],
    trials: int,
    seed: int,
    setting: BiasSetting | None = None,
) -> Iterator[BiasRow]:
    """Compare the estimators over batch compositions.

    Args:
        distribution: The scores.
        batches: Sampling rate pi0 and batch size of each composition; at
            least one positive is drawn.
        trials: Batches of each composition, >= 2.
        seed: Every composition has random numbers of its own, so rows do not depend on which others
            are requested.
        setting: Of the estimators; None for the defaults.

    Yields:
        A row for each composition and estimator.
    """
    setting = BiasSetting() if setting is None else setting
    auprc_risk = 1 - population_auprc(distribution, setting.prior)
    soprc_risk = population_soprc_risk(distribution, setting.prior, setting.tau1, setting.tau2)
    for rate, size in batches:
        num_pos = max(round(rate * size), 1)
        rng = np.random.default_rng([seed, size, num_pos])
        risks = estimate_risks(distribution, num_pos, size - num_pos, trials, rng, setting)
        for estimator, risk in risks.items():
            trained = estimator == SOPRC_SURROGATES
            yield BiasRow(
                distribution=distribution.name,
                estimator=estimator,
                batch_size=size,
                sampling_rate=rate,
                truth=soprc_risk if trained else auprc_risk,
                mean=risk.mean().item(),
                std=risk.std().item(),
                trials=trials,
            )
