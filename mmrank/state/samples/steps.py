"""Steps of the moving averages and temperatures of samples."""

import math

import torch
from torch import Tensor


def moving_log_mean(log_mean: Tensor, log_batch: Tensor, beta0: float) -> Tensor:
    """Moving average of exponentials, in the log domain.

    ``log s <- log((1 - beta0) s + beta0 g)``. Source: iSogCLR (ICML 2023),
    eq. 12. Where ``log s`` is not finite (a first visit) it becomes log g; where log g is -inf (no
    negatives) or NaN, log s stays.

    Args:
        log_mean: (n,) log s so far.
        log_batch: (n,) log g of the batch.
        beta0: Weight of the batch in (0, 1].

    Returns:
        (n,) new log s, in the wider dtype of the two, without gradient.
    """
    old, new = log_mean.detach(), log_batch.detach()
    dtype = torch.promote_types(old.dtype, new.dtype)
    old, new = old.to(dtype), new.to(dtype)
    keep = math.log(1 - beta0) if beta0 < 1 else -math.inf
    mixed = torch.logaddexp(old + keep, new + math.log(beta0))
    mixed = torch.where(old.isfinite(), mixed, new)
    return torch.where(new.isfinite(), mixed, old)


def temperature_step(
    tau: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    *,
    eta: float,
    beta1: float,
    tau0: float,
    tau_max: float,
) -> tuple[Tensor, Tensor]:
    """Projected momentum step of the temperatures.

    ``u <- (1 - beta1) u + beta1 G``, ``tau <- clip(tau - eta u)``. Source: iSogCLR (ICML 2023),
    algorithm 1, steps 8 and 9.

    Where tau settles, G rises by about ``2 rho / tau`` per unit of tau, and
    by exactly that for normally distributed h. So it settles for an eta well below ``tau / rho``;
    above, tau swings between tau0 and large values.

    Args:
        tau: (n,) temperatures.
        momentum: (n,) u.
        gradient: (n,) G.
        eta: Step size.
        beta1: Weight of the new gradient in (0, 1].
        tau0: Smallest temperature.
        tau_max: Largest temperature.

    Returns:
        New tau and u, (n,) each.
    """
    momentum = torch.lerp(momentum, gradient.to(momentum.dtype), beta1)
    return (tau - eta * momentum).clamp(tau0, tau_max), momentum


def moving_ranks(old: Tensor, batch: Tensor, gamma: float) -> Tensor:
    """Moving averages of surrogate ranks.

    ``u <- (1 - gamma) u + gamma g``. Source: SOAP (NeurIPS 2021), algorithm
    1. A first visit (u = 0) takes g as it is; where g is not finite, u stays.

    Args:
        old: (2, ...) u so far, 0 where there is none.
        batch: (2, ...) g of the batch.
        gamma: Weight of the batch in (0, 1].

    Returns:
        (2, ...) new u, float64, without gradient.
    """
    old, new = old.detach().double(), batch.detach().double()
    # In float32, as they are kept; the pair moves together.
    finite = new.float().isfinite().all(0)
    mixed = torch.where(old[1] > 0, (1 - gamma) * old + gamma * new, new)
    return torch.where(finite, mixed, torch.where(old[1] > 0, old, new))
