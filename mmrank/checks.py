"""Checks of settings, one line each where they are given: a message names field and value."""

from collections.abc import Callable, Collection, Mapping
from numbers import Integral

from mmrank.errors import UserError


def one_of(name: str, value: object, allowed: Collection) -> None:
    """Raise ValueError for an unknown choice of a setting."""
    if value not in allowed:
        raise ValueError(f'{name}={value!r} is unknown; use one of {tuple(allowed)}')


def _check(settings: Mapping, is_right: Callable, wanted: str) -> None:
    for name, value in settings.items():
        if not is_right(value):
            raise ValueError(f'{name} must be {wanted}, got {value!r}')


def check_positive(**settings: float) -> None:
    """Raise ValueError for a setting that is not > 0 and finite."""
    _check(settings, lambda x: 0 < x < float('inf'), '> 0 and finite')


def check_not_negative(**settings: float) -> None:
    """Raise ValueError for a setting that is not >= 0 and finite."""
    _check(settings, lambda x: 0 <= x < float('inf'), '>= 0 and finite')


def check_at_least(least: int, **settings: int) -> None:
    """Raise ValueError for a setting below ``least``."""
    _check(settings, lambda x: x >= least, f'at least {least}')


def check_within(interval: str, **settings: float) -> None:
    """Raise ValueError for a setting outside of an interval, such as ``'(0, 1]'``."""
    low, high = map(float, interval[1:-1].split(','))

    def is_right(x: float) -> bool:
        is_open = (x == low and interval[0] == '(') or (x == high and interval[-1] == ')')
        return low <= x <= high and not is_open

    _check(settings, is_right, f'in {interval}')


def check_ascending(**settings: float) -> None:
    """Raise ValueError unless settings > 0 ascend in the order given; some may be equal."""
    check_positive(**settings)
    values = list(settings.values())
    if values != sorted(values):
        given = ', '.join(f'{name}={value!r}' for name, value in settings.items())
        raise ValueError(f'0 < {" <= ".join(settings)} must hold, got {given}')


def check_score_range(score_range: tuple[float, float]) -> None:
    """Raise ValueError for a range of scores that is not finite, or has no width."""
    low, high = score_range
    if not float('-inf') < low < high < float('inf'):
        raise ValueError(f'score_range must be finite with low < high, got {score_range!r}')


def check_count(name: str, value: object, least: int = 1, fix: str = '') -> None:
    """Raise ValueError if a setting is not an integer >= ``least``, of Python or of NumPy."""
    if isinstance(value, bool) or not (isinstance(value, Integral) and value >= least):
        raise UserError(f'{name} must be an int >= {least}, got {value!r}{fix}')
