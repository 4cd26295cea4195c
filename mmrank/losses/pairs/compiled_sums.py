"""Sums over pairs as operators that ``torch.compile`` does not look into.

Tracing the blocks one by one would write each of them out, and the search of the open scores has a
size that only the data tell.
"""

from collections.abc import Callable
from dataclasses import astuple

import torch
from torch import Tensor

from .interval_sums import IntervalSums, compared_dtype, empty_bins
from .pair_matrix import PairMatrix
from .surrogates import CLASSES, OneSidedHuber, Surrogate
from .tables import PairwiseTables


def _opaque_operator(name: str, fake: Callable) -> Callable:
    """Make an operator ``namespace::name`` of a function that the compiler could not trace.

    ``fake`` takes the same arguments and returns empty tensors of the right shapes. Before torch
    2.4, which has no such operators, the function stays as it is: a compiled graph then breaks
    there.
    """

    def decorate(function: Callable) -> Callable:
        if not hasattr(torch.library, 'custom_op'):
            return function
        operator = torch.library.custom_op(name, mutates_args=())(function)
        operator.register_fake(fake)
        return operator

    return decorate


def _surrogate(kind: str, numbers: str) -> Surrogate:
    """A surrogate by the name of its class and its settings, which an operator can take."""
    settings = map(float.fromhex, numbers.split())
    return CLASSES[kind](*settings)


def fake_sums(pos, pos_mask, neg, neg_mask, kind, numbers):
    """Empty tensors like the sums, their slopes and what backward reads of the negatives."""
    total = torch.empty(pos.shape, dtype=torch.float64, device=pos.device)
    bins = empty_bins(pos, neg if kind == OneSidedHuber.name else neg[:0])
    return total, torch.empty_like(total), bins


def _fake_gradient(grad, neg, pos, pos_mask, neg_mask, bins, kind, numbers):
    return torch.empty_like(neg, memory_format=torch.contiguous_format)


@_opaque_operator('mmrank::pair_sums', fake_sums)
def _sums(
    pos: Tensor, pos_mask: Tensor, neg: Tensor, neg_mask: Tensor | None, kind: str, numbers: str
) -> tuple[Tensor, Tensor, Tensor]:
    total, slope, bins = fake_sums(pos, pos_mask, neg, neg_mask, kind, numbers)
    if not pos.numel():
        return total, slope, bins  # nothing is read of these
    if kind == OneSidedHuber.name:
        evaluator = IntervalSums(float.fromhex(numbers))
        total, slope, (bins,) = evaluator.sums(pos, pos_mask, neg, neg_mask)
    else:
        matrix = PairMatrix(_surrogate(kind, numbers))
        total, slope, _ = matrix.sums(pos, pos_mask, neg, neg_mask)
    return total, slope, bins


@_opaque_operator('mmrank::pair_gradient', _fake_gradient)
def _gradient(
    grad: Tensor,
    neg: Tensor,
    pos: Tensor,
    pos_mask: Tensor,
    neg_mask: Tensor | None,
    bins: Tensor,
    kind: str,
    numbers: str,
) -> Tensor:
    if not pos.numel():
        return torch.zeros_like(neg, memory_format=torch.contiguous_format)
    if kind != OneSidedHuber.name:
        matrix = PairMatrix(_surrogate(kind, numbers))
        return matrix.gradient_of_negatives(grad, neg, pos, pos_mask, neg_mask)
    evaluator = IntervalSums(float.fromhex(numbers))
    # A small part of the work: sorting the positives once more.
    evaluator.tables = PairwiseTables.build(pos, pos_mask, evaluator.tau, compared_dtype(neg))
    return evaluator.gradient_of_negatives(grad, neg, bins)


class CompiledSums:
    """The evaluator of sums over pairs while a graph is compiled."""

    def __init__(self, surrogate: Surrogate) -> None:
        # As a text: two operators that take one symbol of a float are not traced.
        numbers = ' '.join(float(x).hex() for x in astuple(surrogate))
        self.settings = surrogate.name, numbers

    def sums(
        self,
        pos: Tensor,
        pos_mask: Tensor,
        neg: Tensor,
        neg_mask: Tensor | None,
        *,
        values: bool = True,
        slopes: bool = True,
    ) -> tuple[Tensor, Tensor, tuple]:
        """Sums, their slopes by ``pos`` and what the gradient will need."""
        total, slope, bins = _sums(pos, pos_mask, neg, neg_mask, *self.settings)
        return total, slope, (pos, pos_mask, neg_mask, bins)

    def gradient_of_negatives(self, grad: Tensor, neg: Tensor, *extra) -> Tensor:
        """Gradient by ``neg`` from the sums' gradient, in its dtype."""
        pos, pos_mask, neg_mask, bins = extra
        return _gradient(grad, neg, pos, pos_mask, neg_mask, bins, *self.settings)
