"""A moving average of each sample in the log domain, and a temperature that is learned from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.checks import check_ascending, check_positive, check_within
from mmrank.distributed import all_gather_rows

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


class SampleGroups:
    """Sums over the rows of each of (n,) samples, repeated or not, broadcast to all of its rows.

    In float64, and on the CPU in one fixed order, so that the order of the rows does not show. The
    host does not wait for the device.
    """

    def __init__(self, ids: Tensor) -> None:
        ids, order = ids.sort()
        segment = torch.zeros_like(ids)
        segment[1:] = (ids[1:] != ids[:-1]).cumsum(0)
        self._segment = torch.empty_like(segment).scatter_(0, order, segment)

    def sum(self, values: Tensor) -> Tensor:
        """(n,) float64 sum over the sample of each row, of (n,) values."""
        values = values.double()
        order = values.argsort()
        order = order[self._segment[order].argsort(stable=True)]
        totals = torch.zeros_like(values)
        totals.index_add_(0, self._segment[order], values[order])
        return totals[self._segment]

    def mean(self, values: Tensor, usable: Tensor) -> Tensor:
        """(n,) float64 mean over the usable rows of a sample; 0 where there is none."""
        return self.sum(torch.where(usable, values, 0)) / self.sum(usable).clamp(min=1)

    def log_mean_exp(self, values: Tensor, usable: Tensor) -> Tensor:
        """(n,) float64 log of the mean of exp over the usable rows of a sample, else -inf."""
        values = torch.where(usable, values.double(), -torch.inf)
        top = torch.full_like(values, -torch.inf)
        top.scatter_reduce_(0, self._segment, values, 'amax')
        top = top[self._segment]
        shift = torch.where(top.isfinite(), top, 0)
        return shift + self.mean((values - shift).exp(), usable).log()


class SampleLogMean(SampleState):
    """``log s`` of each sample: the log of a moving average of its g, -inf before the first visit.

    ``s <- (1 - beta0) s + beta0 g``. Source: SogCLR (ICML 2022), algorithm 1; iSogCLR (ICML 2023),
    eq. 12. A sample that is several times in a batch, also on several ranks, takes one step with
    the mean of its g. One whose g is not finite takes none: an overflow must not spoil later
    batches.
    """

    def __init__(
        self,
        size: int,
        beta0: float = 0.9,
        load_state: bool = True,
        further: Mapping[str, float] | None = None,
    ) -> None:
        check_within('(0, 1]', beta0=beta0)
        super().__init__(size, {'log_s': -math.inf, **(further or {})}, load_state)
        self.beta0 = beta0

    @property
    def log_s(self) -> Tensor:
        return self.column('log_s')

    @property
    def seen(self) -> Tensor:
        """(size,) bool, True for the samples that a batch has shown."""
        return self.log_s.isfinite()

    def update(self, ids, entries, log_batch, gradient=None, counts=None, group=None) -> None:
        """Take in a batch, if the state moves.

        ``ids`` and ``entries`` are those fetched last, with (n,) log g and, where the temperature
        is learned, (n,) gradients. ``counts`` are the rows of each rank of ``group``.
        """
        if not self.moves:
            return
        rows = [log_batch] if gradient is None else [log_batch, gradient]
        news = torch.stack(rows).detach().double()
        entries = entries.double()
        if group is not None:
            joined = torch.cat([ids[None].double(), entries, news]).t()
            joined = all_gather_rows(joined, counts, group).t()
            ids = joined[0].long()
            entries, news = joined[1:].split([len(entries), len(news)])
        groups = SampleGroups(ids)
        usable = news.isfinite().all(0)
        merged = [groups.log_mean_exp(news[0], usable)]
        merged += [groups.mean(x, usable) for x in news[1:]]
        known = groups.sum(usable) > 0
        self.store(ids, torch.where(known, self.stepped(entries, *merged), entries))

    def stepped(self, entries: Tensor, log_batch: Tensor) -> Tensor:
        """One step of (quantities, n) float64 entries with (n,) log g."""
        return moving_log_mean(entries[0], log_batch, self.beta0)[None]


class SampleTemperature(SampleLogMean):
    """Learned temperature ``tau``, its momentum ``u`` (if ``beta1 < 1``) and log s of each sample.

    Source: iSogCLR (ICML 2023), algorithm 1. 12 bytes per sample, 8 without momentum.
    """

    def __init__(
        self,
        size: int,
        beta0: float = 0.9,
        step: TemperatureStep | None = None,
        load_state: bool = True,
    ) -> None:
        step = step or TemperatureStep()
        further = {'tau': step.tau_init}
        if step.beta1 < 1:
            further['u'] = 0.0
        super().__init__(size, beta0, load_state, further)
        self.step = step

    @property
    def tau(self) -> Tensor:
        return self.column('tau')

    @property
    def u(self) -> Tensor:
        return self.column('u')

    def stepped(self, entries: Tensor, log_batch: Tensor, gradient: Tensor) -> Tensor:
        """One step of (2 or 3, n) float64 log s, tau and u with (n,) log g and G."""
        log_s, tau, *momentum = entries
        tau, u = self.step(tau, momentum[0] if momentum else None, gradient)
        log_s = moving_log_mean(log_s, log_batch, self.beta0)
        return torch.stack([log_s, tau, u][: len(entries)])
