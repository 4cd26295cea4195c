"""Surrogates of the 0-1 loss of a pair, by name or as functions with a gradient."""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from mmrank.checks import check_score_range, one_of
from mmrank.tensors import clamp_infinite

#: All surrogates, by :attr:`Surrogate.name`: an operator of a compiled graph takes a text.
CLASSES: dict[str, type['Surrogate']] = {}


@dataclass(frozen=True)
class Surrogate:
    """A smooth surrogate of the 0-1 pair loss ``l01(x) = 1 if x <= 0 else 0``.

    x is a positive's score minus a negative's score; far above 0 a surrogate is 0. A subclass
    defines :meth:`terms`. ``tau`` is a margin or temperature in units of the scores, > 0.
    """

    tau: float = 1.0
    #: The key of the class in :data:`CLASSES`.
    name: ClassVar[str] = ''
    value_factor = 1.0
    #: Whether pairs of float32 scores are float32, as their difference has all its digits. Not
    #: where the sums are to be exact, or a square might overflow.
    in_float32 = False

    def __init_subclass__(cls) -> None:
        cls.name = f'{cls.__module__}.{cls.__qualname__}'
        CLASSES[cls.name] = cls

    def __post_init__(self) -> None:
        if not 0 < self.tau < math.inf:
            raise ValueError(f'tau must be > 0 and finite, got {self.tau!r}')

    @property
    def has_intervals(self) -> bool:
        """Whether it is exactly the surrogate that moments of intervals sum; a subclass is not."""
        return type(self) is OneSidedHuber

    @property
    def slope_factor(self) -> float:
        return -2 / self.tau

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        """Values over ``value_factor`` at differences x, any shape, which are overwritten.

        ``slopes`` receives the derivatives over ``slope_factor``. None without ``values``.
        """
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        """Value at score differences of any shape and float dtype; no gradient."""
        return self.value_factor * cast(Tensor, self.terms(clamp_infinite(x.detach())))

    def bound(self, low: float, high: float) -> float:
        """Largest value over pairs of scores in ``[low, high]``: that at ``low - high``."""
        check_score_range((low, high))
        return float(self(torch.tensor(low - high, dtype=torch.float64, device='cpu')))


class OneSidedHuber(Surrogate):
    """``1 - 2x/tau`` for ``x < 0``, ``(1 - x/tau)^2`` for ``0 <= x < tau``, 0 beyond.

    Convex, bounds ``l01``, slope at most ``2/tau``. Source: stable AP (2025), eq. 7.

    Example:
        >>> OneSidedHuber(1.0)(torch.tensor([-1.0, 0.0, 0.5]))
        tensor([3.0000, 1.0000, 0.2500])
    """

    value_factor = 2.0

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        z = torch.add(x.new_ones(()), x, alpha=-1 / self.tau, out=x)
        # The slope without its factor; the value is 2 c (z - c/2).
        c = torch.clamp(z, 0, 1, out=slopes)
        return z.sub_(c, alpha=0.5).mul_(c) if values else None


class Sigmoid(Surrogate):
    """``2 sigmoid(-x/tau)``: at most 2, bounds ``l01``, not convex."""

    value_factor = 2.0
    in_float32 = True

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        s = x.mul_(-1 / self.tau).sigmoid_()
        if slopes is not None:
            torch.addcmul(s, s, s, value=-1, out=slopes)
        return s if values else None


class SquaredHinge(Surrogate):
    """``max(0, 1 - x/tau)^2``: grows quadratically, bounds ``l01``."""

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        z = torch.add(x.new_ones(()), x, alpha=-1 / self.tau, out=x).clamp_(min=0)
        if slopes is not None:
            slopes.copy_(z)
        return z.square_() if values else None


class Logistic(Surrogate):
    """``log2(1 + exp(-x/tau))``: 1 at the tie, bounds ``l01``."""

    in_float32 = True

    @property
    def slope_factor(self) -> float:
        return 1.0

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        z = x.neg_().div_(self.tau)
        if slopes is not None:
            torch.sigmoid(z, out=slopes).mul_(-1 / (self.tau * math.log(2)))
        return torch.nn.functional.softplus(z).div_(math.log(2)) if values else None


class OneSidedSigmoid(Surrogate):
    """``tanh(-x / (2 tau))`` for ``x < 0``, else 0: a lower bound of ``l01``, for denominators.

    Source: SOPRC (NeurIPS 2022), ``l2`` of eq. 7.
    """

    in_float32 = True

    @property
    def slope_factor(self) -> float:
        return -1 / (2 * self.tau)

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        steep = torch.lt(x, 0, out=torch.empty_like(x))
        value = x.clamp_(max=0).mul_(-1 / (2 * self.tau)).tanh_()
        if slopes is not None:
            # The square of NaN is NaN, also where it counts as not steep.
            torch.addcmul(x.new_ones(()), value, value, value=-1, out=slopes).mul_(steep)
        return value if values else None


#: Surrogates that bound ``l01``, by the name that ``surrogate`` takes.
SURROGATES: dict[str, type[Surrogate]] = {
    'one_sided_huber': OneSidedHuber,
    'squared_hinge': SquaredHinge,
    'logistic': Logistic,
    'sigmoid': Sigmoid,
}


def build_surrogate(name: str, tau: float) -> Surrogate:
    """Make one of :data:`SURROGATES`; ValueError if the name is unknown or ``tau`` not > 0."""
    one_of('surrogate', name, SURROGATES)
    return SURROGATES[name](tau)
