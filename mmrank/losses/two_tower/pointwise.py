"""Pointwise losses of a score, for positive and for negative pairs."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from mmrank.errors import UserTypeError

# Beyond it softplus is the identity, to the last bit of float64.
_THRESHOLD = 40


class Pointwise:
    """A loss ``l(y, s)`` of one score s: ``l+ = l(1, s)``, ``l- = l(0, s)``.

    Subclasses define ``positive`` (``l+``), ``negative`` (``l-``) and ``negative_slope`` (the
    derivative of ``l-``, or ``negative_and_slope``) elementwise, on tensors of any shape.
    """

    def positive(self, scores: Tensor) -> Tensor:
        raise NotImplementedError

    def negative(self, scores: Tensor) -> Tensor:
        raise NotImplementedError

    def negative_slope(self, scores: Tensor) -> Tensor:
        raise NotImplementedError

    def negative_and_slope(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Both, which may share a computation."""
        return self.negative(scores), self.negative_slope(scores)


class SquarePointwise(Pointwise):
    """``(y - s)^2 / 2`` with y = 1 or 0."""

    def positive(self, scores: Tensor) -> Tensor:
        return 0.5 * (1 - scores).square()

    def negative(self, scores: Tensor) -> Tensor:
        return 0.5 * scores.square()


class _LogisticPointwise(Pointwise):
    """``log(1 + exp(-y s))`` with y = 1 or -1."""

    def positive(self, scores: Tensor) -> Tensor:
        return softplus(-scores, threshold=_THRESHOLD)

    def negative(self, scores: Tensor) -> Tensor:
        return softplus(scores, threshold=_THRESHOLD)

    def negative_and_slope(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Both from one exponential, to the rounding of the larger part.

        ``log(1 + exp(s)) = max(s, 0) - log(1 - min(p, 1 - p))`` with ``p = sigmoid(s)``.
        """
        slope = torch.sigmoid(scores)
        rest = torch.minimum(slope, 1 - slope).neg_().log1p_()
        return scores.relu().sub_(rest), slope


#: Pointwise losses by the name that ``pointwise`` takes.
POINTWISE = {'square': SquarePointwise, 'logistic': _LogisticPointwise}


def build_pointwise(pointwise: str | Pointwise) -> Pointwise:
    """The loss itself, or the loss of a key of ``POINTWISE``, else UserTypeError."""
    if isinstance(pointwise, Pointwise):
        return pointwise
    if not isinstance(pointwise, str) or pointwise not in POINTWISE:
        what = f'pointwise={pointwise!r} is unknown; use one of {tuple(POINTWISE)}'
        raise UserTypeError(f'{what}, or an object derived from mmrank.functional.Pointwise')
    return POINTWISE[pointwise]()
