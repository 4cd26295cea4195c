"""Means, spreads and paired tests of a comparison over seeds, and what they say."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from mmrank.experiments.plan import Comparison
from mmrank.experiments.records import Values
from mmrank.experiments.runs import Outcome

#: Detectors report their metrics, in percent, in steps of it.
STEP = 0.1


def collect_values(plan: Comparison, outcomes: Sequence[Outcome]) -> Values:
    """Arrange the final runs' metrics by method, metric and seed."""
    values = {method.name: {metric: {} for metric in plan.metrics} for method in plan.methods}
    for outcome in outcomes:
        if outcome.metrics is None:
            continue
        for metric, by_seed in values[outcome.run.method].items():
            by_seed[outcome.run.seed] = outcome.metrics[metric] * plan.scale
    return values


def compare_paired(values: Mapping, baseline: Mapping) -> dict[str, float]:
    """Compare two methods by the seeds that both have, with the interval of 95 %."""
    seeds = sorted(set(values) & set(baseline))
    if not seeds:
        return {'pairs': 0}
    ours, theirs = (np.array([x[s] for s in seeds]) for x in (values, baseline))
    differences = ours - theirs
    mean = float(differences.mean())
    made = {'pairs': len(seeds), 'difference': mean}
    if len(seeds) < 2:
        return made
    # Equal up to the rounding of the subtraction.
    rounding = 4 * np.finfo(float).eps * max(np.abs(ours).max(), np.abs(theirs).max())
    if np.ptp(differences) <= rounding:
        p_value = 1.0 if abs(mean) <= rounding else 0.0
        return {**made, 'ci_low': mean, 'ci_high': mean, 'p_value': p_value}
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(0.95)
    made.update(
        ci_low=float(interval.low), ci_high=float(interval.high), p_value=float(test.pvalue)
    )
    return made


def shown_difference(found: Mapping, digits: int = 2) -> str:
    """The mean difference of :func:`compare_paired` with its interval; empty without a pair."""
    if not found['pairs']:
        return ''
    text = f'{found["difference"]:+.{digits}f}'
    if 'ci_low' in found:
        text += f' [{found["ci_low"]:+.{digits}f}, {found["ci_high"]:+.{digits}f}]'
    return text


def verdict(values: Mapping[str, Mapping[int, float]]) -> tuple[str, str]:
    """The method of the highest mean, and a sentence about all: who is level, who is behind.

    A method is level where the 95 % interval of its paired difference holds 0, or where there are
    fewer than two pairs. ``values`` are figures by method and seed; more is better.
    """
    means = {name: sum(own.values()) / len(own) for name, own in values.items()}
    best = max(means, key=means.__getitem__)
    level = []
    behind = []
    widths = []
    for name, own in values.items():
        if name == best:
            continue
        found = compare_paired(values[best], own)
        low = found.get('ci_low', -math.inf)
        high = found.get('ci_high', math.inf)
        widths.append((high - low) / 2)
        # One step of the metric in every pair is its rounding, and no interval of no width.
        is_rounding = low == high and low < 1.5 * STEP
        if low > 0 and not is_rounding:
            behind.append(f'{name} is behind by {found["difference"]:.2f} [{low:.2f}, {high:.2f}].')
        else:
            level.append(name)
    reason = f'level with {", ".join(level)}' if level else 'ahead of all others'
    if not widths:
        reason = 'the only one'
    sentence = ' '.join([f'{best} has the highest mean, {reason}.', *behind])
    finite = [width for width in widths if math.isfinite(width)]
    if finite:
        sentence += f' {len(values[best])} seeds tell differences of about {max(finite):.2f}.'
    elif widths:
        sentence += ' One seed cannot tell a difference from chance: more --seeds.'
    return best, sentence
