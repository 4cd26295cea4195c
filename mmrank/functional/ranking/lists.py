"""Positives and negatives of lists, and the forms that users call.

Every ranking function has one calling form::

    X(pos, neg, *extra, pos_mask=None, neg_mask=None, group=None, **settings)

for one list, ``(P,)`` positives and ``(N,)`` negatives, or for L padded
lists, ``(L, P)`` and ``(L, N)``. It is written once, for padded lists;
:func:`ranking_function` adds the form for one list, and :func:`score_lists` makes ``X_lists(scores,
is_positive, *extra, mask=None, **settings)`` from it.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import on_host
from mmrank.docstrings import docstring_of_scores
from mmrank.losses.pairs.pair_sums import check_lists

_MASKS = ('pos_mask', 'neg_mask', 'group')

#: Scores of all lists that are worked on at a time, where an intermediate result as large as the
#: scores would take several times their memory:
#: 1,203 classes x 100,000 anchors are 481 MB in float32.
SCORES_PER_BLOCK = 2**20


def block_width(num_lists: int) -> int:
    """Columns of (L, N) scores that make a block.

    Args:
        num_lists: L.

    Returns:
        At least 1.
    """
    return max(SCORES_PER_BLOCK // max(num_lists, 1), 1)


def ranking_function(
    function: Callable | None = None, *, of_positives: Sequence[str] = ()
) -> Callable:
    """Make a ranking function of the maths of padded lists.

    A decorator. The maths is ``function(pos, neg, *extra, pos_mask, neg_mask, group, **settings)``
    with (L, P) ``pos``, (L, N) ``neg``, a ``pos_mask`` that is never None and a ``neg_mask`` that
    may be. It returns (L,) float64 values, or a NamedTuple of tensors whose first dimension is L.

    Args:
        function: The maths.
        of_positives: Names of the extra tensors with one value for each positive, of the shape of
            ``pos``.

    Returns:
        A function of the same signature. For 2-D scores it checks the shapes and calls the maths.
        For 1-D scores it returns the values of the one list, without the dimension of the lists:
        float64 if a score is float64, else float32. An extra tensor then has no dimension of the
        lists either. It raises ValueError where shapes do not fit and TypeError where scores are
        not of a float dtype.

    Example:
        >>> @ranking_function
        ... def gap(pos, neg, *, pos_mask=None, neg_mask=None, group=None):
        ...     return neg.amax(1).double() - pos.amin(1)
        >>> gap(torch.tensor([3.0, 2.0]), torch.tensor([1.0]))
        tensor(-1.)
        >>> gap(torch.tensor([[3.0, 2.0]]), torch.tensor([[1.0]]))
        tensor([-1.], dtype=torch.float64)
    """
    if function is None:
        return lambda maths: ranking_function(maths, of_positives=of_positives)
    names = _extra_names(function)

    @wraps(function)
    def ranked(pos, neg, *extra, pos_mask=None, neg_mask=None, **settings):
        check_lists(pos, neg, or_one=True)
        one_list = pos.dim() == 1
        for name, value in (*zip(names, extra), *settings.items()):
            if name in of_positives:
                _check_shape(name, value, 'pos', pos)
        _check_shape('pos_mask', pos_mask, 'pos', pos)
        _check_shape('neg_mask', neg_mask, 'neg', neg)
        if pos_mask is None:
            pos_mask = torch.ones_like(pos, dtype=torch.bool)
        if not one_list:
            return function(pos, neg, *extra, pos_mask=pos_mask, neg_mask=neg_mask, **settings)
        dtype = torch.promote_types(torch.promote_types(pos.dtype, neg.dtype), torch.float32)
        values = function(
            pos[None],
            neg[None],
            *(_as_lists(*x) for x in zip(names, extra)),
            *extra[len(names) :],
            pos_mask=pos_mask[None],
            neg_mask=None if neg_mask is None else neg_mask[None],
            **{
                key: _as_lists(key, value) if key in names else value
                for key, value in settings.items()
            },
        )
        return _map(lambda x: _cast(x[0], dtype), values)

    ranked.of_positives = tuple(of_positives)
    return ranked


def score_lists(function: Callable[..., Tensor], name: str | None = None) -> Callable[..., Tensor]:
    """Make the form for score matrices of a ranking function.

    Args:
        function: A :func:`ranking_function` X.
        name: Name of the result. None: that of X, with ``_lists`` at its end in place of ``_loss``.

    Returns:
        ``X_lists(scores, is_positive, *extra, mask=None, **settings)`` with (L, N) scores, whose
        signature and docstring say so.

    Example:
        >>> from mmrank.functional import smooth_ap_loss
        >>> smooth_ap_lists = score_lists(smooth_ap_loss)
        >>> smooth_ap_lists(torch.tensor([[0.9, 0.5, 0.2, -0.5]]),
        ...                 torch.tensor([[1, 0, 1, 0]]))
        tensor([0.1667])
        >>> print(inspect.signature(smooth_ap_lists))  # doctest: +ELLIPSIS
        (scores: ..., is_positive: ..., *, tau: float = 0.01, mask: ...
    """
    names = _extra_names(function)
    of_positives = getattr(function, 'of_positives', ())

    def of_scores(scores, is_positive, *extra, mask=None, **settings):
        if scores.dim() != 2 or scores.shape != is_positive.shape:
            raise ValueError(
                'scores and is_positive must be (lists, scores) of one shape, got '
                f'{tuple(scores.shape)} and {tuple(is_positive.shape)}'
            )
        _check_shape('mask', mask, 'scores', scores)
        refuse_nan('is_positive', is_positive, 'give each score 0 or 1')
        is_positive = is_positive.bool()
        neg_mask = ~is_positive
        if mask is not None:
            is_positive, neg_mask = is_positive & mask, neg_mask & mask
        index, pos_mask = positive_index(is_positive)

        def at_positives(name, values):
            if name not in of_positives:
                return values
            _check_shape(name, values, 'scores', scores)
            return torch.where(pos_mask, values.gather(1, index), 0)

        values = function(
            scores.gather(1, index),
            scores,
            *(at_positives(*x) for x in zip(names, extra)),
            *extra[len(names) :],
            pos_mask=pos_mask,
            neg_mask=neg_mask,
            **{key: at_positives(key, x) for key, x in settings.items()},
        )
        dtype = torch.promote_types(scores.dtype, torch.float32)
        return _map(lambda x: _cast(x, dtype), values)

    of_scores.__name__ = of_scores.__qualname__ = (
        name or function.__name__.removesuffix('_loss') + '_lists'
    )
    of_scores.__module__ = function.__module__
    of_scores.__signature__ = _signature_of_scores(function)
    of_scores.__doc__ = docstring_of_scores(function, of_positives, ('pos', 'neg', *_MASKS))
    return of_scores


def _extra_names(function: Callable) -> list[str]:
    """Names of the extra tensors: the positional arguments after two."""
    return [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD
    ][2:]


def _check_shape(name: str, value: Tensor | None, other: str, of: Tensor) -> None:
    if value is not None and value.shape != of.shape:
        raise ValueError(
            f'{name} must have shape {tuple(of.shape)} as {other} has, got {tuple(value.shape)}'
        )


def _as_lists(name: str, value):
    """An extra argument of one list as that of L = 1 lists."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    if value.dim() > 1:
        raise ValueError(f'{name} must be 1-D for one list, got shape {tuple(value.shape)}')
    return value[None]


def _map(change: Callable[[Tensor], Tensor], values):
    """Change a tensor, or each tensor of nested NamedTuples."""
    if isinstance(values, tuple):
        return type(values)(*(_map(change, x) for x in values))
    return change(values)


def _cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype) if values.is_floating_point() else values


def _signature_of_scores(function: Callable) -> inspect.Signature:
    signature = inspect.signature(function)
    _, _, *own = signature.parameters.values()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    new = [inspect.Parameter(name, kind, annotation=Tensor) for name in ('scores', 'is_positive')]
    mask = inspect.Parameter(
        'mask', inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Tensor | None
    )
    own = [p for p in own if p.name not in _MASKS]
    return signature.replace(parameters=[*new, *own, mask])


def positive_index(is_positive: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of the positives of each list, padded to the longest list.

    Args:
        is_positive: (L, N) bool.

    Returns:
        (L, P) int64 columns, ascending, 0 at padding, and (L, P) bool mask that is False at
        padding; P is the largest number of positives.
    """
    if is_positive.size(0) == 1:
        # The number of positives is known: no second wait for the device.
        if on_host(is_positive):
            # Several times faster where few are positive.
            index = torch.from_numpy(np.flatnonzero(is_positive[0].numpy()))
        else:
            index = is_positive[0].nonzero()[:, 0]
        index = index.unsqueeze(0)
        return index, torch.ones_like(index, dtype=torch.bool)
    lists, columns = is_positive.nonzero(as_tuple=True)
    # Not by bincount, which makes the host wait for the device.
    counts = lists.new_zeros(is_positive.size(0))
    counts.scatter_add_(0, lists, torch.ones_like(lists))
    width = int(counts.max()) if lists.numel() else 0
    first = counts.cumsum(0) - counts
    slot = torch.arange(lists.numel(), device=lists.device) - first[lists]
    index = lists.new_zeros(is_positive.size(0), width)
    index[lists, slot] = columns
    mask = torch.zeros_like(index, dtype=torch.bool)
    mask[lists, slot] = True
    return index, mask


def gather_positives(scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
    """Positives of each list, padded to the longest list.

    Args:
        scores: (L, N) scores.
        is_positive: (L, N) bool.

    Returns:
        (L, P) scores, differentiable in ``scores``, and (L, P) bool mask that is False at padding;
        P is the largest number of positives.
    """
    index, mask = positive_index(is_positive)
    return scores.gather(1, index), mask


def one_vs_all(target: Tensor, num_classes: int) -> Tensor:
    """Positives of every class from class indices or a multi-label matrix.

    Args:
        target: (n,) class indices, ``num_classes`` = background, or (n, C)
            of 0 and 1.
        num_classes: C.

    Returns:
        (n, C) bool.

    Raises:
        ValueError: If the shape does not fit, a label is NaN, or an index is no whole number in
            ``[0, C]``. On a GPU the check of the values is a device-side assertion, which does not
            make the host wait.
    """
    if target.dim() == 2 and target.size(1) == num_classes:
        refuse_nan('target', target, 'give each class 0 or 1')
        return target > 0
    if target.dim() != 1:
        raise ValueError(
            f'target must be (n,) class indices or (n, {num_classes}) labels '
            f'for {num_classes} classes, got shape {tuple(target.shape)}'
        )
    check_class_indices(target, num_classes, num_classes)
    result = torch.zeros((len(target), num_classes), dtype=torch.bool, device=target.device)
    if num_classes == 0:
        return result
    # Several times faster than comparing each entry. A row of background writes False to the last
    # column.
    column = target.long().clamp(max=num_classes - 1).unsqueeze(1)
    return result.scatter_(1, column, (target < num_classes).unsqueeze(1))


def check_class_indices(target: Tensor, num_classes: int, highest: int) -> None:
    """Refuse labels that are no class indices.

    Args:
        target: (n,) numbers, of any dtype.
        num_classes: C, for the message.
        highest: Largest index that is allowed: C, which is the background,
            or C - 1.

    Raises:
        ValueError: If one is NaN, no whole number, or outside of ``[0, highest]``; on a GPU it is a
            device-side assertion, which does not make the host wait.
    """
    refuse_nan('target', target, 'give each row the index of its class')
    if not target.numel():
        return
    fits = (target >= 0) & (target <= highest)
    if target.is_floating_point():
        fits &= target == target.floor()
    if target.device.type != 'cpu':
        torch._assert_async(fits.all())
    elif not fits.all():
        background = f' ({num_classes} = background)'
        raise ValueError(
            f'target holds class indices from {target.min().item()} to {target.max().item()}, but '
            f'they must be whole numbers from 0 to {highest}: the scores have {num_classes} '
            f'classes{background if highest == num_classes else ""}; set num_classes of the head '
            'to the number of classes of the data set'
        )


def refuse_nan(name: str, values: Tensor, fix: str) -> None:
    """Refuse NaN, which compares as False and would pass for a label.

    Args:
        name: Of the argument.
        values: Numbers of any shape and dtype.
        fix: What to do, for the message.

    Raises:
        ValueError: If a value is NaN; on a GPU it is a device-side assertion, which does not make
            the host wait.
    """
    if not values.is_floating_point() or not values.numel():
        return
    broken = values.isnan()
    if values.device.type != 'cpu':
        torch._assert_async(~broken.any())
    elif broken.any():
        raise ValueError(
            f'{name} is NaN at {broken.nonzero()[0].tolist()}, and in '
            f'{int(broken.sum())} of {values.numel()} entries; {fix}'
        )


def check_classified(
    cls_score: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    num_classes: int | None = None,
    weight_per_class: bool = True,
) -> None:
    """Refuse scores, labels and weights that do not belong together.

    The values of the labels are checked by
    :func:`one_vs_all`.

    Args:
        cls_score: What should be (n, C) floats.
        target: What should be (n,) or (n, C) labels.
        weight: What should be (n,) or (n, C) weights, or None.
        num_classes: C, or None if any number fits.
        weight_per_class: Whether (n, C) weights are allowed.

    Raises:
        ValueError: If shapes or devices do not fit, or a weight is NaN; on a GPU the latter is a
            device-side assertion.
        TypeError: If the scores are not of a float dtype.
    """
    if not cls_score.is_floating_point():
        raise TypeError(
            f'cls_score must be of a float dtype, got {cls_score.dtype}; call cls_score.float()'
        )
    if cls_score.dim() != 2:
        raise ValueError(f'cls_score must be (n, classes), got shape {tuple(cls_score.shape)}')
    rows, classes = cls_score.shape
    if num_classes not in (None, classes):
        raise ValueError(
            f'num_classes={num_classes} but cls_score has {classes} columns; set num_classes of '
            'the loss and the head to the same value'
        )
    allowed = {'target': [(rows,), (rows, classes)], 'weight': [(rows,)]}
    if weight_per_class:
        allowed['weight'].append((rows, classes))
    for name, values in (('target', target), ('weight', weight)):
        if values is None:
            continue
        if tuple(values.shape) not in allowed[name]:
            shapes = ' or '.join(map(str, allowed[name]))
            raise ValueError(
                f'{name} must have shape {shapes} for cls_score of shape {tuple(cls_score.shape)}, '
                f'got {tuple(values.shape)}; give one {name} for each row of the scores'
            )
        if values.device != cls_score.device:
            raise ValueError(
                f'{name} is on {values.device} but cls_score on '
                f'{cls_score.device}; call {name}.to(cls_score.device)'
            )
    if weight is not None:
        refuse_nan('weight', weight, 'give 0 to a row that should not count')


def count_negatives(neg: Tensor, neg_mask: Tensor | None = None, group=None) -> Tensor:
    """Number of negatives of each list.

    Args:
        neg: (L, N) scores of the negatives.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread, or None.

    Returns:
        (L,) float64, the same on all ranks of the group.
    """
    if neg_mask is None:
        number = torch.full(neg.shape[:1], neg.size(1), dtype=torch.float64, device=neg.device)
    elif len(neg_mask) == 1 and on_host(neg_mask):
        number = torch.tensor([np.count_nonzero(neg_mask.numpy())]).double()
    else:
        # Block by block: a sum of bool makes a copy in int64 on a CPU.
        blocks = neg_mask.split(block_width(neg_mask.size(0)), 1)
        number = sum(block.sum(1) for block in blocks).double()
    if group is not None:
        dist.all_reduce(number, group=group)
    return number


def split_targets(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One list of logits and targets as a ranking function takes it.

    Args:
        logits: Float scores of any shape.
        targets: Same shape; > 0 positive, 0 negative, < 0 (or NaN) left out.

    Returns:
        (P,) positives, (N,) all scores, (N,) bool mask of the negatives and (P,) targets of the
        positives.

    Raises:
        ValueError: If the shapes differ.
        TypeError: If the logits are not of a float dtype.
    """
    if not logits.is_floating_point():
        raise TypeError(f'logits must be of a float dtype, got {logits.dtype}; call logits.float()')
    if logits.shape != targets.shape:
        raise ValueError(
            'logits and targets must have one shape, got '
            f'{tuple(logits.shape)} and {tuple(targets.shape)}'
        )
    scores, targets = logits.reshape(-1), targets.reshape(-1)
    index = (targets > 0).nonzero()[:, 0]
    return scores[index], scores, targets == 0, targets[index]
