"""Checks of settings and of tensors, one line each where they are given.

A message names field, value and fix. A check of the numbers of a tensor is a device-side assertion
on a GPU, which does not make the host wait.
"""

from collections.abc import Collection
from numbers import Integral

import torch
from torch import Tensor

from mmrank.autograd import violated
from mmrank.errors import UserError, UserTypeError


def one_of(name: str, value: object, allowed: Collection) -> None:
    """Raise ValueError for an unknown choice of a setting."""
    if value not in allowed:
        raise ValueError(f'{name}={value!r} is unknown; use one of {tuple(allowed)}')


def check_positive(**settings: float) -> None:
    """Raise ValueError for a setting that is not > 0 and finite."""
    for name, value in settings.items():
        if not 0 < value < float('inf'):
            raise ValueError(f'{name} must be > 0 and finite, got {value!r}')


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


def check_within(interval: str, **settings: float) -> None:
    """Raise ValueError for a setting outside of an interval, such as ``'(0, 1]'``."""
    low, high = map(float, interval[1:-1].split(','))
    for name, value in settings.items():
        is_above = value >= low if interval[0] == '[' else value > low
        is_below = value <= high if interval[-1] == ']' else value < high
        if not (is_above and is_below):
            raise ValueError(f'{name} must be in {interval}, got {value!r}')


def check_count(name: str, value: object, least: int = 1, fix: str = '') -> None:
    """Raise ValueError if a setting is not an integer >= ``least``, of Python or of NumPy."""
    if isinstance(value, bool) or not (isinstance(value, Integral) and value >= least):
        raise UserError(f'{name} must be an int >= {least}, got {value!r}{fix}')


def check_tensors(**values: object) -> None:
    """Raise TypeError for a list, an array or a string where a tensor belongs."""
    for name, value in values.items():
        if value is None or isinstance(value, Tensor):
            continue
        fix = f'torch.as_tensor({name})'
        if isinstance(next(iter(value), '') if hasattr(value, '__iter__') else value, str):
            fix = f'number the classes: torch.tensor([classes.index(x) for x in {name}])'
        raise UserTypeError(f'{name} must be a tensor, got {type(value).__name__}. Fix: {fix}')


def check_floats(**values: Tensor | None) -> None:
    """Raise TypeError for what is no tensor of a float dtype."""
    check_tensors(**values)
    for name, value in values.items():
        if value is not None and not value.is_floating_point():
            raise TypeError(
                f'{name} must be of a float dtype, got {value.dtype}; call {name}.float()'
            )


def refuse_nan(name: str, values: Tensor, fix: str) -> None:
    """Raise ValueError for NaN, which compares as False and would pass for a label."""
    if not values.is_floating_point() or not values.numel():
        return
    broken = values.isnan()
    if violated(~broken.any(), f'{name} is NaN; {fix}'):
        raise UserError(
            f'{name} is NaN at {broken.nonzero()[0].tolist()}, and in '
            f'{int(broken.sum())} of {values.numel()} entries; {fix}'
        )


def zeros_and_ones(name: str, values: Tensor, fix: str) -> Tensor:
    """Bool of labels that are 0 or 1 by value, of any dtype and shape.

    ValueError for every other number: -1, a smoothed label and a grade all have a meaning that
    neither 0 nor 1 has.
    """
    if values.dtype == torch.bool or not values.numel():
        return values.bool()
    ones = values == 1
    if violated((ones | (values == 0)).all(), f'{name} must be 0 and 1. Fix: {fix}'):
        refuse_nan(name, values, 'give each entry 0 or 1')
        raise UserError(
            f'{name} must be 0 and 1, got numbers from {values.min().item()} to '
            f'{values.max().item()}. Fix: {fix}'
        )
    return ones


def shares(name: str, values: Tensor, fix: str) -> Tensor:
    """The values, if they are in [0, 1]; else ValueError."""
    if values.numel() and violated(
        ((values >= 0) & (values <= 1)).all(), f'{name} must be in [0, 1]. Fix: {fix}'
    ):
        refuse_nan(name, values, fix)
        raise UserError(
            f'{name} must be in [0, 1], got numbers from {values.min().item()} to '
            f'{values.max().item()}. Fix: {fix}'
        )
    return values


def check_index(
    name: str, index: Tensor, size: int, fix: str, shape: tuple[int, ...] | None = None
) -> None:
    """Raise TypeError or UserError unless integers of a ``shape`` are in ``[0, size)``."""
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(f'{name} must be integers, got {index.dtype}; call {name}.long()')
    if shape is not None and index.shape != shape:
        raise ValueError(f'{name} must have shape {shape}, got {tuple(index.shape)}')
    if not index.numel():
        return
    index = index.long()  # a smaller type would wrap the size
    if violated(((index >= 0) & (index < size)).all(), f'{name} is not in [0, {size})'):
        raise UserError(
            f'{name} holds indices from {index.min().item()} to {index.max().item()}, but they '
            f'must be in [0, {size}). Fix: {fix}'
        )
