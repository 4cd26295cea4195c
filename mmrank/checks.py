"""Checks of settings, one line each where they are given: a message names field and value."""

from collections.abc import Collection
from numbers import Integral

from mmrank.errors import UserError


def one_of(name: str, value: object, allowed: Collection) -> None:
    """Raise ValueError for an unknown choice of a setting."""
    if value not in allowed:
        raise ValueError(f'{name}={value!r} is unknown; use one of {tuple(allowed)}')


def check_positive(**settings: float) -> None:
    """Raise ValueError for a setting that is not > 0."""
    for name, value in settings.items():
        if not value > 0:
            raise ValueError(f'{name} must be > 0, got {value!r}')


def check_not_negative(**settings: float) -> None:
    """Raise ValueError for a setting that is not >= 0 and finite."""
    for name, value in settings.items():
        if not 0 <= value < float('inf'):
            raise ValueError(f'{name} must be >= 0 and finite, got {value!r}')


def check_at_least(least: int, **settings: int) -> None:
    """Raise ValueError for a setting below ``least``."""
    for name, value in settings.items():
        if value < least:
            raise ValueError(f'{name} must be at least {least}, got {value!r}')


def check_share(name: str, value: float) -> None:
    """Raise ValueError if a setting is not in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f'{name} must be in (0, 1], got {value!r}')


def check_count(name: str, value: object, least: int = 1, fix: str = '') -> None:
    """Raise ValueError if a setting is not an integer >= ``least``, of Python or of NumPy."""
    if isinstance(value, bool) or not (isinstance(value, Integral) and value >= least):
        raise UserError(f'{name} must be an int >= {least}, got {value!r}{fix}')
