"""Positives and negatives of lists, and the forms that users call.

Every ranking function has one calling form::

    X(pos, neg, *extra, pos_mask=None, neg_mask=None, group=None, **settings)

for one list, ``(P,)`` positives and ``(N,)`` negatives, or for L padded
lists, ``(L, P)`` and ``(L, N)``. It is written once, for padded lists;
:func:`ranking_function` adds the form for one list, and :func:`score_lists`
makes ``X_lists(scores, is_positive, *extra, mask=None, **settings)`` from it.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.docstrings import docstring_of_scores
from mmrank.functional.pairwise.pairwise_surrogate import check_lists

from .class_labels import refuse_nan

_MASKS = ('pos_mask', 'neg_mask', 'group')


def ranking_function(
    function: Callable | None = None, *, of_positives: Sequence[str] = ()
) -> Callable:
    """Make a ranking function of the maths of padded lists.

    A decorator. The maths is ``function(pos, neg, *extra, pos_mask, neg_mask,
    group, **settings)`` with (L, P) ``pos``, (L, N) ``neg``, a ``pos_mask``
    that is never None and a ``neg_mask`` that may be. It returns (L,) float64
    values, or a NamedTuple of tensors whose first dimension is L.

    Args:
        function: The maths.
        of_positives: Names of the extra tensors with one value for each
            positive, of the shape of ``pos``.

    Returns:
        A function of the same signature. For 2-D scores it checks the shapes
        and calls the maths. For 1-D scores it returns the values of the one
        list, without the dimension of the lists: float64 if a score is
        float64, else float32. An extra tensor then has no dimension of the
        lists either. It raises ValueError where shapes do not fit and
        TypeError where scores are not of a float dtype.

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
            return function(
                pos,
                neg,
                *extra,
                pos_mask=pos_mask,
                neg_mask=neg_mask,
                **settings,
            )
        dtype = torch.promote_types(
            torch.promote_types(pos.dtype, neg.dtype), torch.float32
        )
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


def score_lists(
    function: Callable[..., Tensor], name: str | None = None
) -> Callable[..., Tensor]:
    """Make the form for score matrices of a ranking function.

    Args:
        function: A :func:`ranking_function` X.
        name: Name of the result. None: that of X, with ``_lists`` at its end
            in place of ``_loss``.

    Returns:
        ``X_lists(scores, is_positive, *extra, mask=None, **settings)`` with
        (L, N) scores, whose signature and docstring say so.

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
                'scores and is_positive must be (lists, scores) of one '
                f'shape, got {tuple(scores.shape)} and '
                f'{tuple(is_positive.shape)}'
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
    of_scores.__doc__ = docstring_of_scores(
        function, of_positives, ('pos', 'neg', *_MASKS)
    )
    return of_scores


def _extra_names(function: Callable) -> list[str]:
    """Names of the extra tensors: the positional arguments after two."""
    return [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD
    ][2:]


def _check_shape(
    name: str, value: Tensor | None, other: str, of: Tensor
) -> None:
    if value is not None and value.shape != of.shape:
        raise ValueError(
            f'{name} must have shape {tuple(of.shape)} as {other} has, got '
            f'{tuple(value.shape)}'
        )


def _as_lists(name: str, value):
    """An extra argument of one list as that of L = 1 lists."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    if value.dim() > 1:
        raise ValueError(
            f'{name} must be 1-D for one list, got shape {tuple(value.shape)}'
        )
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
    new = [
        inspect.Parameter(name, kind, annotation=Tensor)
        for name in ('scores', 'is_positive')
    ]
    mask = inspect.Parameter(
        'mask',
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Tensor | None,
    )
    own = [p for p in own if p.name not in _MASKS]
    return signature.replace(parameters=[*new, *own, mask])


def positive_index(is_positive: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of the positives of each list, padded to the longest list.

    Args:
        is_positive: (L, N) bool.

    Returns:
        (L, P) int64 columns, ascending, 0 at padding, and (L, P) bool mask
        that is False at padding; P is the largest number of positives.
    """
    lists, columns = is_positive.nonzero(as_tuple=True)
    if is_positive.size(0) == 1:
        # The number of positives is known: no second wait for the device.
        index = columns.unsqueeze(0)
        return index, torch.ones_like(index, dtype=torch.bool)
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


def gather_positives(
    scores: Tensor, is_positive: Tensor
) -> tuple[Tensor, Tensor]:
    """Positives of each list, padded to the longest list.

    Args:
        scores: (L, N) scores.
        is_positive: (L, N) bool.

    Returns:
        (L, P) scores, differentiable in ``scores``, and (L, P) bool mask that
        is False at padding; P is the largest number of positives.
    """
    index, mask = positive_index(is_positive)
    return scores.gather(1, index), mask


def count_negatives(
    neg: Tensor, neg_mask: Tensor | None = None, group=None
) -> Tensor:
    """Number of negatives of each list.

    Args:
        neg: (L, N) scores of the negatives.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread, or None.

    Returns:
        (L,) float64, the same on all ranks of the group.
    """
    if neg_mask is None:
        number = torch.full(
            neg.shape[:1], neg.size(1), dtype=torch.float64, device=neg.device
        )
    else:
        number = neg_mask.sum(1).double()
    if group is not None:
        dist.all_reduce(number, group=group)
    return number
