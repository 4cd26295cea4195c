"""What a comparison of losses says: the best one, what is level with it, and what it could tell."""

import math

from mmrank.experiments.records import Values
from mmrank.experiments.statistics import compare_paired

#: Detectors report their metrics in steps of it.
STEP = 0.1
#: Percent that the mean of one loss reaches at least where something was learnt. On the playing
#: cards heads have 0.1 after a warm-up of 12 steps, and 18 or more after 52.
LEAST_MEAN = 1.0


def answer(values: Values, metric: str, usual: str | None = None) -> tuple[str | None, str]:
    """The recommended loss, and a sentence about all of them; None where nothing was learnt.

    A loss is level with the best mean where the 95 % interval of their paired difference holds 0,
    where all pairs differ by one :data:`STEP`, or where there are fewer than two pairs.

    Args:
        values: Figures of the runs in percent, by method, metric and seed.
        metric: The metric that is compared; more is better.
        usual: The loss that is recommended if it is level with the best mean. None: the best mean.
    """
    runs = {name: found[metric] for name, found in values.items() if found[metric]}
    means = {name: sum(x.values()) / len(x) for name, x in runs.items()}
    best = max(means, key=means.__getitem__)
    if means[best] < LEAST_MEAN:
        highest = f'the highest mean of {metric} is {means[best]:.2f}, below {LEAST_MEAN}'
        return None, f'No loss has learnt anything, so there is no answer: {highest}.'
    level = []
    behind = []
    widths = []
    for name in runs:
        if name == best:
            continue
        found = compare_paired(runs[best], runs[name])
        low = found.get('ci_low', -math.inf)
        high = found.get('ci_high', math.inf)
        widths.append((high - low) / 2)
        # One step of the metric in every pair is its rounding, and no interval of no width.
        is_rounding = low == high and abs(low) < 1.5 * STEP
        if is_rounding or low <= 0 <= high:
            level.append(name)
        else:
            difference = f'{abs(found["difference"]):.2f} [{low:.2f}, {high:.2f}]'
            behind.append(f'{name} is behind {best} by {difference}.')
    recommended = usual if usual in level else best
    others = [name for name in (best, *level) if name != recommended]
    reason = f'level with {", ".join(others)}' if others else 'ahead of all others'
    finite = [x for x in widths if math.isfinite(x)]
    power = 'One seed cannot tell a difference from chance: raise --budget.'
    if finite:
        power = f'{len(runs[best])} seeds tell differences of about {max(finite):.2f} or more.'
    return recommended, ' '.join([f'{recommended} is recommended: {reason}.', *behind, power])
