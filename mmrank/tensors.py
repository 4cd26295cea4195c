"""Checks of the tensors that users pass; rows of length 1; the float type, limits and blocks.

A message names field, value and fix. On a GPU a check of numbers is a device-side assertion, which
does not make the host wait.
"""

import warnings
from typing import TypeVar, cast

import torch
from torch import Tensor

from mmrank.autograd import Function, can_sync, inside_transform, is_compiling, violated
from mmrank.errors import UserError, UserTypeError

_Values = TypeVar('_Values', bound=tuple)


def at_least_float32(tensor: Tensor) -> Tensor:
    """A tensor in float32 or, where it has it, a wider type.

    In half precision close scores tie, and areas of large boxes overflow.
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def as_divisor(total: Tensor) -> Tensor:
    """Totals >= 0 to divide by: 1 in place of 0, of what holds nothing."""
    return torch.where(total > 0, total, 1)


class _UnitRows(Function):
    """Division by the length, whose gradient reads the rows three times.

    The gradient of ``torch.nn.functional.normalize`` reads and writes them a dozen times. It is
    made of operations that autograd knows, so it can be differentiated.
    """

    @staticmethod
    def forward(ctx, x):
        scale = torch.maximum(x.amax(1, keepdim=True), x.amin(1, keepdim=True).neg_())
        zero = scale < 2**16 * torch.finfo(x.dtype).tiny
        # x / inf = 0, and so is the gradient of a row that counts as zero.
        # The squares of x itself may leave the range.
        rows = x / scale.masked_fill_(zero, torch.inf)
        length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        rows /= length.masked_fill_(zero, 1)
        ctx.save_for_backward(x, rows, length.mul_(scale))
        return rows

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        x, rows, length = ctx.saved_tensors
        if torch.is_grad_enabled():
            # The same value, as a function of x.
            again = torch.linalg.vecdot(x, rows)[:, None]
            length = length + (again - again.detach())
        along = torch.linalg.vecdot(grad, rows)[:, None]
        return torch.addcmul(grad, rows, along, value=-1) / length


def unit_rows(x: Tensor) -> Tensor:
    """Divide each of (n, D) rows by its Euclidean length, in at least float32.

    In half precision close cosines would tie. A row of 1e-30 or 1e30, whose squares leave the range
    of float32, has a length like any other. A row of zeros stays zero and has no gradient, and so
    has one of entries below 8e-34 (2e-303 in float64), whose gradient would not be finite.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return _UnitRows.apply(x) if x.numel() else x


def clamp_infinite(scores: Tensor) -> Tensor:
    """Scores within +-1e30; NaN stays NaN.

    The square of 1e30, summed over any list, is finite in float64.
    """
    # No global: of dynamic shapes the compiler takes one for a number that may change.
    limit = min(1e30, torch.finfo(scores.dtype).max)
    return scores.clamp(-limit, limit)


#: Scores of all lists that are worked on at a time, see :func:`block_width`.
SCORES_PER_BLOCK = 2**20


def column_blocks(width: int, size: int, on_host: bool = False) -> list[slice]:
    """Slices of at most ``size`` columns that cover ``width`` columns.

    One of all columns in a compiled graph, which would else be that of one width, with a copy of
    the work for each block. ``on_host`` says that it is none.
    """
    if not on_host and is_compiling():
        return [slice(None)]
    return [slice(begin, min(begin + size, width)) for begin in range(0, width, size)]


def block_width(num_lists: int) -> int:
    """Columns of (L, N) scores that make a block, at least 1.

    For work on all lists whose intermediate results would take several times the memory of the
    scores: 1,203 classes x 100,000 anchors are 481 MB in float32.
    """
    return max(SCORES_PER_BLOCK // max(num_lists, 1), 1)


def size_levels(sizes: Tensor) -> Tensor:
    """Integers that sizes of 1, 2, 3 to 4, 5 to 8, ... have in common: 0, 1, 2, 3, ..."""
    # frexp: the exponent e has 2^(e-1) <= size - 1/2 < 2^e.
    return torch.frexp(sizes - 0.5).exponent


def check_tensors(**values: object) -> None:
    """Raise TypeError for a list, an array or a string where a tensor belongs."""
    for name, value in values.items():
        if value is None or isinstance(value, Tensor):
            continue
        first = next(iter(value), '') if hasattr(value, '__iter__') else value
        fix = f'torch.as_tensor({name})'
        if isinstance(first, str):
            fix = f'number the classes: torch.tensor([classes.index(x) for x in {name}])'
        elif isinstance(first, Tensor) and first.dim():
            fix = f'torch.stack({name}, 1) of levels; of (labels, IoUs) labels, and quality=IoUs'
        raise UserTypeError(f'{name} must be a tensor, got {type(value).__name__}. Fix: {fix}')


def check_floats(**values: Tensor | None) -> None:
    """Raise TypeError unless each value is a tensor of a float dtype, or None."""
    check_tensors(**values)
    for name, value in values.items():
        if value is not None and not value.is_floating_point():
            raise TypeError(
                f'{name} must be of a float dtype, got {value.dtype}; call {name}.float()'
            )


def refuse_swapped(name: str, scores: object, labels: object) -> None:
    """Raise TypeError for integers before floats: scikit-learn takes the labels first."""
    are_floats = [x.is_floating_point() for x in (scores, labels) if isinstance(x, Tensor)]
    if are_floats == [False, True]:
        what = f'{name} must be of a float dtype, and are integers with floats as labels'
        raise UserTypeError(what, f'{name} first, then labels')


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


def require_numbers(name: str, values: Tensor, fits: Tensor, wanted: str, fix: str) -> None:
    """Raise UserError unless all numbers fit, by bool of the values; a NaN among them is named."""
    if violated(fits.all(), f'{name} must be {wanted}. Fix: {fix}'):
        refuse_nan(name, values, f'Fix: {fix}')
        found = f'got numbers from {values.min().item()} to {values.max().item()}'
        raise UserError(f'{name} must be {wanted}, {found}', fix)


def zeros_and_ones(name: str, values: Tensor, fix: str) -> Tensor:
    """Bool of labels that are 0 or 1 by value, of any dtype and shape.

    ValueError for every other number: -1, a smoothed label and a grade all have a meaning that
    neither 0 nor 1 has.
    """
    if values.dtype == torch.bool:
        return values
    ones = values == 1
    require_numbers(name, values, ones | (values == 0), '0 and 1', fix)
    return ones


def whole_numbers(name: str, values: Tensor, fix: str) -> Tensor:
    """Levels, of any dtype and shape, if they are whole numbers >= 0; else UserError."""
    if values.dtype != torch.bool:
        fix += ' to leave out what is unknown; relevances of any size go into '
        fix += 'smooth_ap_loss(relevance=...)'
        fits = (values >= 0) & (values == values.floor())
        require_numbers(name, values, fits, 'whole numbers >= 0, 0 for a negative', fix)
    return values


def shares(name: str, values: Tensor, fix: str) -> Tensor:
    """The values, if they are in [0, 1]; else ValueError."""
    require_numbers(name, values, (values >= 0) & (values <= 1), 'in [0, 1]', fix)
    return values


def checked_weight(name: str, weight: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    """Weights of one of the ``shapes``, as they are, if they are finite and >= 0; else an error.

    Floats, or bool or integers that are 0 and 1. An entry of weight w counts as w entries, one of
    weight 0 as absent. Weights are constants: those that require a gradient are refused.
    """
    check_tensors(**{name: weight})
    if weight.requires_grad:
        what = f'{name} requires a gradient, but how often an entry counts is a constant'
        raise UserError(f'{what}: it gets none', f'{name}.detach()')
    if tuple(weight.shape) not in shapes:
        what = f'{name} must have shape {" or ".join(map(str, shapes))}, got {tuple(weight.shape)}'
        raise UserError(what, f'one {name} for each entry')
    if weight.dtype == torch.bool or not weight.numel():
        return weight
    if not weight.is_floating_point():
        # Places in the training set, passed in order, would weigh the last samples most.
        fix = f'{name}.float() if they are weights; sample_idx= and quality= by name'
        zeros_and_ones(name, weight, fix)
        return weight
    fix = f'{name} must be finite and >= 0. Fix: 0 for what does not count, 1 for what counts once'
    least, most = weight.aminmax()  # NaN wins in both
    if violated((least >= 0) & (most < torch.inf), fix):
        refuse_nan(name, weight, 'give 0 to what should not count')
        raise UserError(f'{fix}; got {weight.min().item()} to {weight.max().item()}')
    return weight


def none_absent(weight: Tensor) -> bool:
    """Whether the host sees at once that no weight is 0."""
    return can_sync(weight) and bool(weight.all())


def zero_absent(weight: Tensor, values: _Values) -> _Values:
    """Values of the first n entries each, 0 where the weight is: what is absent may be anything."""
    if none_absent(weight):
        return values
    found = []
    for x in values:
        # Others are None, or what a check of the caller refuses.
        if isinstance(x, Tensor) and x.dim() and len(x) <= len(weight):
            x = x.to(weight.device, non_blocking=True)
            absent = weight[: len(x)] == 0
            x = x.masked_fill(absent.view(-1, *[1] * (x.dim() - 1)), 0)
        found.append(x)
    return cast(_Values, tuple(found))


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
    allowed = f'in [0, {size})' if size < 2**62 else '>= 0'
    if violated(((index >= 0) & (index < size)).all(), f'{name} is not {allowed}'):
        raise UserError(
            f'{name} holds indices from {index.min().item()} to {index.max().item()}, but they '
            f'must be {allowed}. Fix: {fix}'
        )


def is_first_batch(loss: torch.nn.Module, values: Tensor) -> bool:
    """Whether a loss sees its first batch; later ones are not looked at: a device would wait."""
    if is_compiling() or loss.__dict__.get('_has_looked') or values.is_meta or inside_transform():
        return False
    loss.__dict__['_has_looked'] = True
    return len(values) >= 4


def warn_of_few_samples(sample_idx: Tensor) -> None:
    """Warn where half of the rows or fewer are different samples, as where these are classes."""
    samples = len(sample_idx.unique())
    if samples <= len(sample_idx) / 2:
        warnings.warn(
            f'{len(sample_idx)} rows have {samples} different sample_idx, and rows of one sample '
            'are not negatives of each other. Fix: the place of each sample in the training set; '
            'classes go into labels=',
            stacklevel=5,
        )
