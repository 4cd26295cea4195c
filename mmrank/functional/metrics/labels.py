"""What the numbers of labels mean: checks that losses and metrics share."""

import torch
from torch import Tensor

from mmrank.autograd import violated
from mmrank.errors import UserError, UserTypeError


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
    """Raise ValueError for NaN, which compares as False and would pass for a label.

    On a GPU it is a device-side assertion, which does not make the host wait.
    """
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
    neither 0 nor 1 has. On a GPU it is a device-side assertion, which does not make the host wait.
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
    """The values, if they are in [0, 1]; else ValueError, on a GPU a device-side assertion."""
    if values.numel() and violated(
        ((values >= 0) & (values <= 1)).all(), f'{name} must be in [0, 1]. Fix: {fix}'
    ):
        refuse_nan(name, values, fix)
        raise UserError(
            f'{name} must be in [0, 1], got numbers from {values.min().item()} to '
            f'{values.max().item()}. Fix: {fix}'
        )
    return values
