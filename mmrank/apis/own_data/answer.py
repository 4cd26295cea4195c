"""What a comparison of losses says: the best one, what is level with it, and what it could tell."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..seeds.statistics import Values, compare_paired

#: Detectors report their metrics in steps of it.
STEP = 0.1


@dataclass(frozen=True)
class _Answer:
    """The recommended loss, and the others that are level with the best mean."""

    best: str
    level: tuple[str, ...]
    sentence: str


def answer(
    values: Values, metric: str, lower_better: bool = False, usual: str | None = None
) -> _Answer:
    """The answer of the (method, metric, seed) ``values``.

    A loss is level with the best mean where the 95 % interval of their paired difference holds 0,
    where all pairs differ by one :data:`STEP`, or where there are fewer than two pairs.

    Args:
        values: Figures of the runs.
        metric: The one that is compared.
        lower_better: Whether a small figure is a good one.
        usual: The loss that is recommended if it is level with the best mean. None: the best mean.
    """
    runs = {name: found[metric] for name, found in values.items() if found[metric]}
    sign = -1 if lower_better else 1
    means = {name: sign * sum(x.values()) / len(x) for name, x in runs.items()}
    best = max(means, key=means.__getitem__)
    level = []
    behind = {}
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
            behind[name] = (found['difference'], low, high)
    recommended = usual if usual in level else best
    sentence = _sentence(best, level, behind, widths, len(runs[best]))
    if level:
        sentence = f'{recommended} is recommended. {sentence}'
    others = [name for name in (best, *level) if name != recommended]
    return _Answer(recommended, tuple(others), sentence)


def _sentence(
    best: str, level: list[str], behind: Mapping[str, tuple], widths: list[float], seeds: int
) -> str:
    text = f'{best} is ahead of all others.'
    if level:
        text = f'Level: {", ".join([best, *level])}.'
    for name, (difference, low, high) in behind.items():
        text += f' {best} is ahead of {name} by {abs(difference):.2f} [{low:+.2f}, {high:+.2f}].'
    finite = [x for x in widths if math.isfinite(x)]
    if finite:
        text += f' {seeds} seeds can tell differences of about {max(finite):.2f}.'
    else:
        text += ' One seed tells nothing of chance: raise --budget.'
    return text
