"""How iSogCLR learns a temperature per sample."""

import torch
from torch import Tensor


def temperature_gradient(
    log_batch: Tensor,
    log_mean: Tensor,
    mean_h: Tensor,
    tau: Tensor,
    rho: float,
) -> Tensor:
    """Gradient of the robust contrastive loss in the temperature.

    ``G = (tau/s) dg/dtau + log s + rho`` with ``dg/dtau = -g mean_h/tau^2``.
    Source: iSogCLR (ICML 2023), eq. 13; its 1/n is part of the step size.

    Args:
        log_batch: (n,) log g, see :func:`mmrank.functional.negative_terms`.
        log_mean: (n,) log s, see :func:`mmrank.functional.moving_log_mean`.
        mean_h: (n,) weighted mean of h.
        tau: (n,) temperatures.
        rho: Radius of the ball around the uniform weights.

    Returns:
        (n,) without gradient; not finite for an anchor without negatives.
    """
    log_g, log_s = log_batch.detach(), log_mean.detach()
    ratio = (log_g - log_s).exp()
    return log_s + rho - ratio * mean_h.detach() / tau.detach()


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

    ``u <- (1 - beta1) u + beta1 G``, ``tau <- clip(tau - eta u)``. Source:
    iSogCLR (ICML 2023), algorithm 1, steps 8 and 9.

    Where tau settles, G rises by about ``2 rho / tau`` per unit of tau, and
    by exactly that for normally distributed h. So it settles for an eta well
    below ``tau / rho``; above, tau swings between tau0 and large values.

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
