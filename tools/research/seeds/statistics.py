"""Means, spreads and paired tests of a comparison over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .outcome import Outcome
from .plan import SeedPlan

# By method and metric: the value of each seed.
Values = Mapping[str, Mapping[str, Mapping[int, float]]]


@dataclass(frozen=True)
class Summary:
    """A cell of the table, with its comparison to the baseline.

    Args:
        method: Name of the method.
        metric: Key of the metric.
        n: Number of seeds.
        mean: Mean over the seeds; NaN for none.
        std: Standard deviation, ``ddof=1``; NaN for fewer than two.
        pairs: Number of seeds that the baseline has as well; 0 for the baseline itself.
        difference: Mean over the pairs of value minus baseline.
        ci_low: Lower end of its 95 % confidence interval.
        ci_high: Upper end.
        p_value: Two-sided paired t-test.
        p_wilcoxon: Two-sided Wilcoxon signed-rank test; NaN for fewer than
            6 pairs, with which it cannot fall below 0.05.
    """

    method: str
    metric: str
    n: int
    mean: float
    std: float
    pairs: int = 0
    difference: float = math.nan
    ci_low: float = math.nan
    ci_high: float = math.nan
    p_value: float = math.nan
    p_wilcoxon: float = math.nan


def collect_values(plan: SeedPlan, outcomes: Sequence[Outcome]) -> Values:
    """Arrange the final runs' metrics by method, metric and seed."""
    return {
        method.name: {
            metric: {
                outcome.run.seed: outcome.metrics[metric] * plan.scale
                for outcome in outcomes
                if outcome.run.method == method.name and outcome.metrics is not None
            }
            for metric in plan.metrics
        }
        for method in plan.methods
    }


def compare_paired(
    values: Mapping[int, float], baseline: Mapping[int, float], level: float = 0.95
) -> dict[str, float]:
    """Compare two methods by the seeds that both have.

    Args:
        values: Value by seed.
        baseline: Value by seed.
        level: Confidence level of the interval.

    Returns:
        ``pairs``, ``difference``, ``ci_low``, ``ci_high``, ``p_value`` and ``p_wilcoxon``, as in
        :class:`Summary`. Fewer than two pairs have no interval and no p-value. Where all
        differences are equal the test
        has nothing to go by: the interval is a point, and the p-value 1 for
        no difference and 0 otherwise.
    """
    seeds = sorted(set(values) & set(baseline))
    differences = np.array([values[s] - baseline[s] for s in seeds])
    made = {'pairs': len(seeds)}
    if len(seeds) == 0:
        return made
    made['difference'] = mean = float(differences.mean())
    if len(seeds) < 2:
        return made
    # Equal up to the rounding of the subtraction.
    scale = max(abs(value) for s in seeds for value in (values[s], baseline[s]))
    rounding = 4 * np.finfo(float).eps * scale
    if np.ptp(differences) <= rounding:
        p_value = 1.0 if abs(mean) <= rounding else 0.0
        return {**made, 'ci_low': mean, 'ci_high': mean, 'p_value': p_value}
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(level)
    made.update(
        ci_low=float(interval.low), ci_high=float(interval.high), p_value=float(test.pvalue)
    )
    if len(seeds) >= 6:
        made['p_wilcoxon'] = float(stats.wilcoxon(differences).pvalue)
    return made


def summarise(plan: SeedPlan, values: Values) -> list[Summary]:
    """Compute all cells of the table, method by method."""
    cells = []
    for method in plan.methods:
        for metric in plan.metrics:
            own = values[method.name][metric]
            numbers = np.array([own[seed] for seed in sorted(own)])
            n = len(numbers)
            comparison = {}
            if method.name != plan.baseline:
                comparison = compare_paired(own, values[plan.baseline][metric])
            cells.append(
                Summary(
                    method=method.name,
                    metric=metric,
                    n=n,
                    mean=float(numbers.mean()) if n else math.nan,
                    std=float(numbers.std(ddof=1)) if n > 1 else math.nan,
                    **comparison,
                )
            )
    return cells
