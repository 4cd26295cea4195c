"""Global contrastive loss: an average and a temperature per sample."""

import math

import torch
from torch import Tensor


def temperature_gradient(
    log_batch: Tensor, log_mean: Tensor, mean_h: Tensor, tau: Tensor, rho: float
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


def global_contrastive_loss(
    log_batch: Tensor, log_mean: Tensor, tau: Tensor | float, rho: float = 0.0, tau0: float = 0.0
) -> Tensor:
    """Robust global contrastive loss of each anchor.

    The value is ``tau log s + (tau - tau0) rho``, the dual form of the
    robust loss. The gradient is ``(tau/s) grad g``, in which tau and s are constants. Source:
    iSogCLR (ICML 2023), eq. 7 and 14; with ``rho=0`` and one tau it is SogCLR (ICML 2022).

    Args:
        log_batch: (n,) log g of the batch with gradient, see
            :func:`mmrank.functional.negative_terms`.
        log_mean: (n,) log s, see :func:`moving_log_mean`.
        tau: Temperatures, one or (n,).
        rho: Weight of the temperature.
        tau0: Smallest temperature.

    Returns:
        (n,) losses, 0 for an anchor without negatives. If log s is log g the gradient is that of
        the value.
    """
    has_negatives = log_batch.detach() != -math.inf
    log_g = torch.where(has_negatives, log_batch, 0)
    log_s = torch.where(has_negatives, log_mean.detach(), 0).to(log_g.dtype)
    tau = torch.as_tensor(tau, dtype=log_g.dtype, device=log_g.device).detach()
    # At most 1/beta0, since s >= beta0 g.
    ratio = (log_g.detach() - log_s).exp()
    varying = tau * ratio * log_g
    value = tau * log_s + (tau - tau0) * rho
    return torch.where(has_negatives, value + (varying - varying.detach()), varying * 0)
