"""Further surrogates, and surrogates by name or as functions with a gradient."""

import math

import torch
from torch import Tensor

from .pair_sums import OneSidedHuber, Sigmoid, Surrogate, pairwise_surrogate_sum


def one_sided_huber(x: Tensor, tau: float) -> Tensor:
    """One-sided Huber surrogate, an upper bound of ``l01``.

    ``1 - 2x/tau`` for ``x < 0``, ``(1 - x/tau)^2`` for ``0 <= x < tau`` and 0 beyond: convex,
    continuously differentiable, slope at most ``2/tau``. Source: stable AP (2025), eq. 7.

    Args:
        x: Score differences, any shape, float dtype. NaN stays NaN.
        tau: Margin in units of the scores, a finite number > 0, else ValueError.

    Returns:
        Tensor of the shape and dtype of ``x``, values in ``[0, inf)``.

    Example:
        >>> one_sided_huber(torch.tensor([-1.0, 0.0, 0.5, 2.0]), tau=1.0)
        tensor([3.0000, 1.0000, 0.2500, 0.0000])
    """
    OneSidedHuber(tau)  # checks tau
    z = 1 - x / tau
    # The quadratic branch is clamped first so that its gradient stays finite where the other branch
    # is taken, and so that NaN runs through it.
    return torch.where(x < 0, 2 * z - 1, z.clamp(min=0).square())


def one_sided_sigmoid(x: Tensor, tau: float) -> Tensor:
    """One-sided sigmoid, a lower bound of ``l01``.

    ``tanh(-x / (2 tau))`` for ``x < 0``, 0 otherwise; tends to ``l01`` as ``tau`` goes to 0.
    Arguments as of :func:`one_sided_huber`, values in ``[0, 1)``. Source: SOPRC (NeurIPS 2022),
    ``l2`` of eq. 7.
    """
    OneSidedSigmoid(tau)  # checks tau
    return torch.tanh(x.clamp(max=0) / (-2 * tau))


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
    if name not in SURROGATES:
        raise ValueError(f'surrogate={name!r} is unknown; use one of {sorted(SURROGATES)}')
    return SURROGATES[name](tau)


def pairwise_surrogate_mean(pos: Tensor, neg: Tensor, tau: float, method: str = 'auto') -> Tensor:
    """(n+,) ``l_i = mean_j l(s_i - t_j)`` with the one-sided Huber surrogate, 0 without negatives.

    Arguments and errors as of :func:`pairwise_surrogate_sum`, for one list; float64 if an input is,
    else float32. Source: stable AP (2025), eq. 2.

    Example:
        >>> pairwise_surrogate_mean(torch.tensor([1.0, 0.0]),
        ...                         torch.tensor([0.5, -2.0]), tau=1.0)
        tensor([0.1250, 1.0000])
    """
    if pos.dim() != 1 or neg.dim() != 1:
        raise ValueError(
            f'pos and neg must be 1-D, got shapes {tuple(pos.shape)} and {tuple(neg.shape)}'
        )
    total = pairwise_surrogate_sum(pos[None], neg[None], OneSidedHuber(tau), method=method)[0]
    dtype = torch.promote_types(torch.promote_types(pos.dtype, neg.dtype), torch.float32)
    return (total / max(neg.numel(), 1)).to(dtype)
