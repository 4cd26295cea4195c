"""Smooth surrogates of the 0-1 pair loss ``l01(x) = 1 if x <= 0 else 0``.

``x`` is a score difference, positive minus negative. The losses require three quantities of a
surrogate: its value, its derivative and its largest value over a range of scores.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# Infinite scores act as this: its square and its sum over any list are
# finite in float64, and it is a float32.
SCORE_LIMIT = 1e30


def clamp_infinite(scores: Tensor) -> Tensor:
    """Scores within ``+-SCORE_LIMIT``; NaN stays NaN."""
    return scores.clamp(-SCORE_LIMIT, SCORE_LIMIT)


class Surrogate(Protocol):
    """What a loss needs of a pair surrogate.

    One that is 0 far above 0, with a slope of 0, may have a method ``pair_terms(x, values,
    slopes)`` too, which the pair matrix then calls in place of the other two. It may overwrite the
    (L, P, N) differences ``x``, writes their slopes divided by its ``slope_factor`` to ``slopes``,
    unless that is None, and returns the (L, P) sums of their values, or None without ``values``.
    """

    def __call__(self, x: Tensor) -> Tensor:
        """Value at the score differences ``x``, any shape."""

    def derivative(self, x: Tensor) -> Tensor:
        """Derivative at ``x``, same shape."""

    def bound(self, low: float, high: float) -> float:
        """Largest value over pairs of scores in ``[low, high]``."""


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f'{name} must be a finite number > 0, got {value!r}')


def _check_range(low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f'the score range must be finite with low < high, got ({low!r}, {high!r})')


def one_sided_huber(x: Tensor, tau: float) -> Tensor:
    """One-sided Huber surrogate, an upper bound of ``l01``.

    ``1 - 2x/tau`` for ``x < 0``, ``(1 - x/tau)^2`` for ``0 <= x < tau`` and 0
    beyond: convex, continuously differentiable, slope at most ``2/tau``.
    Source: stable AP (2025), eq. 7.

    Args:
        x: Score differences, any shape, float dtype. NaN stays NaN.
        tau: Margin in units of the scores, > 0.

    Returns:
        Tensor of the shape and dtype of ``x``, values in ``[0, inf)``.

    Raises:
        ValueError: If ``tau`` is not a finite number > 0.

    Example:
        >>> one_sided_huber(torch.tensor([-1.0, 0.0, 0.5, 2.0]), tau=1.0)
        tensor([3.0000, 1.0000, 0.2500, 0.0000])
    """
    _check_positive('tau', tau)
    z = 1 - x / tau
    # The quadratic branch is clamped first so that its gradient stays finite where the other branch
    # is taken, and so that NaN runs through it.
    return torch.where(x < 0, 2 * z - 1, z.clamp(min=0).square())


def one_sided_huber_derivative(x: Tensor, tau: float) -> Tensor:
    """Derivative of :func:`one_sided_huber`, in ``[-2/tau, 0]``."""
    _check_positive('tau', tau)
    return (1 - x / tau).clamp(0, 1) * (-2 / tau)


def one_sided_sigmoid(x: Tensor, tau: float) -> Tensor:
    """One-sided sigmoid, a lower bound of ``l01``.

    ``tanh(-x / (2 tau))`` for ``x < 0``, 0 otherwise; tends to ``l01`` as ``tau`` goes to 0.
    Source: SOPRC (NeurIPS 2022), ``l2`` of eq. 7.

    Args:
        x: Score differences, any shape, float dtype. NaN stays NaN.
        tau: Temperature in units of the scores, > 0.

    Returns:
        Tensor of the shape and dtype of ``x``, values in ``[0, 1)``.

    Raises:
        ValueError: If ``tau`` is not a finite number > 0.
    """
    _check_positive('tau', tau)
    return torch.tanh(x.clamp(max=0) / (-2 * tau))


@dataclass(frozen=True)
class OneSidedHuber:
    """:func:`one_sided_huber` behind the :class:`Surrogate` interface."""

    tau: float = 1.0

    def __post_init__(self):
        _check_positive('tau', self.tau)

    def __call__(self, x: Tensor) -> Tensor:
        return one_sided_huber(x, self.tau)

    def derivative(self, x: Tensor) -> Tensor:
        return one_sided_huber_derivative(x, self.tau)

    @property
    def slope_factor(self) -> float:
        return -2 / self.tau

    def pair_terms(self, x: Tensor, values: bool, slopes: Tensor | None) -> Tensor | None:
        z = torch.add(x.new_ones(()), x, alpha=-1 / self.tau, out=x)
        # The slope without its factor; the value is 2 c (z - c/2).
        c = torch.clamp(z, 0, 1, out=slopes)
        return 2 * z.sub_(c, alpha=0.5).mul_(c).sum(-1) if values else None

    def bound(self, low: float, high: float) -> float:
        _check_range(low, high)
        return 1 + 2 * (high - low) / self.tau


@dataclass(frozen=True)
class SquaredHinge:
    """``max(0, 1 - x/tau)^2``: grows quadratically, bounds ``l01``."""

    tau: float = 1.0

    def __post_init__(self):
        _check_positive('tau', self.tau)

    def __call__(self, x: Tensor) -> Tensor:
        return (1 - x / self.tau).clamp(min=0).square()

    def derivative(self, x: Tensor) -> Tensor:
        return (1 - x / self.tau).clamp(min=0) * (-2 / self.tau)

    @property
    def slope_factor(self) -> float:
        return -2 / self.tau

    def pair_terms(self, x: Tensor, values: bool, slopes: Tensor | None) -> Tensor | None:
        z = torch.add(x.new_ones(()), x, alpha=-1 / self.tau, out=x)
        z.clamp_(min=0)
        if slopes is not None:
            slopes.copy_(z)
        return z.square_().sum(-1) if values else None

    def bound(self, low: float, high: float) -> float:
        _check_range(low, high)
        return (1 + (high - low) / self.tau) ** 2


@dataclass(frozen=True)
class Logistic:
    """``log2(1 + exp(-x/tau))``: 1 at the tie, bounds ``l01``."""

    tau: float = 1.0

    def __post_init__(self):
        _check_positive('tau', self.tau)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-x / self.tau) / math.log(2)

    def derivative(self, x: Tensor) -> Tensor:
        scale = -1 / (self.tau * math.log(2))
        return torch.sigmoid(-x / self.tau) * scale

    def bound(self, low: float, high: float) -> float:
        _check_range(low, high)
        z = (high - low) / self.tau
        return (z + math.log1p(math.exp(-z))) / math.log(2)


@dataclass(frozen=True)
class Sigmoid:
    """``2 sigmoid(-x/tau)``: bounded by 2, bounds ``l01``, not convex."""

    tau: float = 1.0

    def __post_init__(self):
        _check_positive('tau', self.tau)

    def __call__(self, x: Tensor) -> Tensor:
        return 2 * torch.sigmoid(-x / self.tau)

    def derivative(self, x: Tensor) -> Tensor:
        s = torch.sigmoid(-x / self.tau)
        return s * (1 - s) * (-2 / self.tau)

    @property
    def slope_factor(self) -> float:
        return -2 / self.tau

    def pair_terms(self, x: Tensor, values: bool, slopes: Tensor | None) -> Tensor | None:
        s = x.mul_(-1 / self.tau).sigmoid_()
        if slopes is not None:
            torch.addcmul(s, s, s, value=-1, out=slopes)
        return 2 * s.sum(-1) if values else None

    def bound(self, low: float, high: float) -> float:
        _check_range(low, high)
        return 2 / (1 + math.exp(-(high - low) / self.tau))


@dataclass(frozen=True)
class OneSidedSigmoid:
    """:func:`one_sided_sigmoid` behind the :class:`Surrogate` interface.

    It bounds ``l01`` from below, so it serves denominators and is no choice
    of :func:`build_surrogate`.
    """

    tau: float = 1.0

    def __post_init__(self):
        _check_positive('tau', self.tau)

    def __call__(self, x: Tensor) -> Tensor:
        return one_sided_sigmoid(x, self.tau)

    def derivative(self, x: Tensor) -> Tensor:
        # NaN must not look like a flat place, hence the product.
        steep = (x < 0) | x.isnan()
        value = one_sided_sigmoid(x, self.tau)
        return (1 - value.square()) * (steep / (-2 * self.tau))

    @property
    def slope_factor(self) -> float:
        return -1 / (2 * self.tau)

    def pair_terms(self, x: Tensor, values: bool, slopes: Tensor | None) -> Tensor | None:
        steep = x < 0
        value = x.clamp_(max=0).mul_(-1 / (2 * self.tau)).tanh_()
        if slopes is not None:
            # The square of NaN is NaN, also where it counts as not steep.
            torch.addcmul(x.new_ones(()), value, value, value=-1, out=slopes)
            slopes.mul_(steep)
        return value.sum(-1) if values else None

    def bound(self, low: float, high: float) -> float:
        _check_range(low, high)
        return math.tanh((high - low) / (2 * self.tau))


SURROGATES: dict[str, type] = {
    'one_sided_huber': OneSidedHuber,
    'squared_hinge': SquaredHinge,
    'logistic': Logistic,
    'sigmoid': Sigmoid,
}
"""Surrogates by the name that ``surrogate`` takes."""


def build_surrogate(name: str, tau: float) -> Surrogate:
    """Make a surrogate by name.

    Args:
        name: A key of :data:`SURROGATES`.
        tau: Margin or temperature in units of the scores, > 0.

    Raises:
        ValueError: If the name is unknown or ``tau`` is not > 0.
    """
    if name not in SURROGATES:
        raise ValueError(f'surrogate={name!r} is unknown; use one of {sorted(SURROGATES)}')
    return SURROGATES[name](tau)
