"""A moving average of each sample in the log domain; a temperature or margin learned from it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.distributed import all_gather_rows
from mmrank.settings import check_ascending, check_positive, check_within

from .sample_state import SampleState


def moving_log_mean(log_mean: Tensor, log_batch: Tensor, beta0: float) -> Tensor:
    """(n,) moving average of exponentials, ``log s <- log((1 - beta0) s + beta0 g)``.

    Source: iSogCLR (ICML 2023), eq. 12. Where ``log s`` is not finite (a first visit) it becomes
    log g; where log g is -inf (no negatives) or NaN, log s stays. In the wider dtype of the two,
    without gradient.
    """
    old = log_mean.detach()
    new = log_batch.detach()
    dtype = torch.promote_types(old.dtype, new.dtype)
    old = old.to(dtype)
    new = new.to(dtype)
    keep = math.log(1 - beta0) if beta0 < 1 else -math.inf
    mixed = torch.logaddexp(old + keep, new + math.log(beta0))
    mixed = torch.where(old.isfinite(), mixed, new)
    return torch.where(new.isfinite(), mixed, old)


@dataclass(frozen=True)
class TemperatureStep:
    """Projected momentum step of learned temperatures, at the start ``tau_init``.

    ``u <- (1 - beta1) u + beta1 G``, ``tau <- clip(tau - eta u)`` to ``tau0`` and ``tau_max``, with
    G clipped to ``gradient_clip``. Source: iSogCLR (ICML 2023), algorithm 1, steps 8 and 9. Where
    tau settles, G rises by about ``2 rho / tau`` per unit of tau, so it settles for an eta well
    below ``tau / rho``; above, tau swings between tau0 and large values.
    """

    eta: float = 0.001
    beta1: float = 0.9
    tau_init: float = 0.7
    tau0: float = 0.05
    tau_max: float = 1.0
    gradient_clip: float | None = None

    def __post_init__(self) -> None:
        if self.gradient_clip is not None:
            check_positive(gradient_clip=self.gradient_clip)
        check_within('(0, 1]', beta1=self.beta1)
        if not self.eta > 0:
            raise ValueError(
                f'eta must be > 0, got {self.eta!r}; for a fixed temperature use mmrank.SogCLRLoss'
            )
        check_ascending(tau0=self.tau0, tau_init=self.tau_init, tau_max=self.tau_max)

    def __call__(
        self, tau: Tensor, momentum: Tensor | None, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """New (n,) tau and u, of (n,) tau, u and G; without u it is 0."""
        if self.gradient_clip is not None:
            gradient = gradient.clamp(-self.gradient_clip, self.gradient_clip)
        if momentum is None:
            momentum = torch.zeros_like(tau)
        momentum = torch.lerp(momentum, gradient.to(momentum.dtype), self.beta1)
        return (tau - self.eta * momentum).clamp(self.tau0, self.tau_max), momentum


class SampleLogMean(SampleState):
    """``log s`` of each sample: the log of a moving average of its g, -inf before the first visit.

    ``s <- (1 - beta0) s + beta0 g``. Source: SogCLR (ICML 2022), algorithm 1; iSogCLR (ICML 2023),
    eq. 12. See :class:`SampleState` for ``size`` and ``load_state``.
    """

    says_log = True
    log_s: Tensor  # (size,) float32 buffer

    def __init__(self, size: int, beta0: float = 0.9, load_state: bool = True) -> None:
        check_within('(0, 1]', beta0=beta0)
        super().__init__(size, load_state)
        self.beta0 = beta0
        self.add_state('log_s', (size,), -math.inf)

    @property
    def seen(self) -> Tensor:
        """(size,) bool, True for the samples that a batch has shown."""
        return self.log_s.isfinite()

    def update(self, ids, log_batch, gradient=None, counts=None, group=None, weight=None) -> None:
        """Take in a batch, if the state moves.

        (n,) log g of the samples ``ids`` and, where the temperature is learned, (n,) gradients.
        ``counts`` are the rows of each rank of ``group``, and ``weight`` is (n,) of the rows.
        """
        if not self.moves:
            return
        rows = [x for x in (log_batch, gradient, weight) if x is not None]
        batch = torch.stack([x.detach().double() for x in rows])
        if group is not None:
            joined = torch.cat([ids[None].double(), batch]).t()
            joined = all_gather_rows(joined, counts, group).t()
            ids = joined[0].long()
            batch = joined[1:]
        self.take(ids, batch) if weight is None else self.take(ids, batch[:-1], batch[-1])

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        return moving_log_mean(entries, batch, self.beta0)


class SampleTemperature(SampleLogMean):
    """Learned temperature ``tau``, its momentum ``u`` (if ``beta1 < 1``) and log s of each sample.

    Source: iSogCLR (ICML 2023), algorithm 1. 12 bytes per sample, 8 without momentum.
    """

    tau: Tensor  # (size,) float32 buffers
    u: Tensor

    def __init__(
        self,
        size: int,
        beta0: float = 0.9,
        step: TemperatureStep | None = None,
        load_state: bool = True,
    ) -> None:
        super().__init__(size, beta0, load_state)
        self.step = step or TemperatureStep()
        self.add_state('tau', (size,), self.step.tau_init)
        if self.step.beta1 < 1:
            self.add_state('u', (size,))

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        log_s, tau, *momentum = entries
        log_g, gradient = batch
        tau, u = self.step(tau, momentum[0] if momentum else None, gradient)
        log_s = moving_log_mean(log_s, log_g, self.beta0)
        return torch.stack([log_s, tau, u][: len(entries)])


class SampleMargin(SampleLogMean):
    """Learned margin ``zeta``, the moving average ``u`` of its slope, and log s of each sample.

    ``u <- (1 - theta) u + theta G``, ``zeta <- zeta - eta u``; the first u is G. With ``eta = 0``
    both stay. Source: NUCLR (ICLR 2025), algorithm 1; theta and the first zeta are of the authors'
    code.
    """

    theta = 0.9
    start = -0.05
    zeta: Tensor  # (size,) float32 buffers
    u: Tensor

    def __init__(
        self, size: int, beta0: float = 0.8, eta: float = 5e-6, load_state: bool = True
    ) -> None:
        super().__init__(size, beta0, load_state)
        self.eta = eta
        self.add_state('zeta', (size,), self.start)
        self.add_state('u', (size,))

    def read(self, ids: Tensor) -> Tensor:
        """The entries, and in a last row the largest zeta of all samples."""
        entries = super().read(ids)
        return torch.cat([entries, self.zeta.max().expand(1, entries.size(1))])

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        log_s, zeta, u, largest = entries
        log_g, slope = batch
        if self.eta:
            u = torch.where(u == 0, slope, torch.lerp(u, slope, self.theta))
            zeta = zeta - self.eta * u
        return torch.stack([moving_log_mean(log_s, log_g, self.beta0), zeta, u, largest])
