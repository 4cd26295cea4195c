"""Numbers that are kept for every sample of a data set, and how a batch moves them.

A moving average in the log domain, and a temperature that is learned from it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.autograd import inside_backward, is_compiling
from mmrank.distributed import all_gather_rows
from mmrank.errors import UserError, UserTypeError
from mmrank.settings import check_ascending, check_count, check_positive, check_within
from mmrank.tensors import as_divisor, check_index

from .base import SavedState


class _SampleGroups:
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
        """(n,) float64 mean over the rows of a sample, ``usable`` or by weights; 0 without any."""
        total = as_divisor(self.sum(usable))
        return self.sum(torch.where(usable > 0, values, 0) * usable) / total

    def log_mean_exp(self, values: Tensor, usable: Tensor) -> Tensor:
        """(n,) float64 log of the mean of exp over the usable rows of a sample, else -inf."""
        values = torch.where(usable > 0, values.double(), -torch.inf)
        top = torch.full_like(values, -torch.inf)
        top.scatter_reduce_(0, self._segment, values, 'amax')
        top = top[self._segment]
        shift = torch.where(top.isfinite(), top, 0)
        return shift + self.mean((values - shift).exp(), usable).log()


class SampleState(SavedState):
    """Base of states of (size,) float32, one entry per sample; a subclass declares them.

    A sample that is several times in a batch, also on several ranks, takes one step with the mean
    of what the batch says. What is not finite takes none: an overflow must not spoil later batches.
    ``DistributedDataParallel`` sends the states around in each forward, which is not needed: save
    the time by ``broadcast_buffers=False``.

    Args:
        size: Number of samples in the training set.
        load_state: False resets the state when a checkpoint is loaded: for a model that continues
            with other data.
    """

    says_log = False  # Whether the first number that a batch says of a sample is a logarithm

    def __init__(self, size: int, load_state: bool = True) -> None:
        fix = '; set it to the number of samples in the training set'
        check_count('num_samples', size, fix=fix)
        super().__init__()
        self.size = size
        self.load_state = load_state
        #: Indices and entries of the last :meth:`fetch` in training.
        self._last: tuple = (None, None)

    @property
    def table(self) -> Tensor:
        """(states, size) float32; a copy."""
        return torch.stack(list(self.buffers()))

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        """One step of (states, ...) float64 entries, with (numbers, ...) that a batch says."""
        raise NotImplementedError

    def fetch(self, ids: Tensor, device: torch.device) -> Tensor:
        """(states, n) float32 entries of (n,) checked indices, repeated or not; a copy.

        A forward that activation checkpointing runs again gets what the first one got: the state
        has moved since. Raises UserError in such a forward of another batch than the last one.
        """
        if self.training and inside_backward():
            last, entries = self._last
            if last is None or not torch.equal(last, ids):
                what = 'activation checkpointing runs the loss of an earlier batch again'
                fix = 'one backward for each forward, or the loss outside of torch.utils.checkpoint'
                raise UserError(f'{what}, whose state has moved since', fix)
            return entries.clone()
        entries = self.read(ids).to(device)
        if self.moves and not is_compiling():
            self._last = (ids, entries.clone())
        return entries

    def read(self, ids: Tensor) -> Tensor:
        """(states, n) float32 entries as they are."""
        first = next(self.buffers())
        ids = ids.to(first.device, non_blocking=True).long()
        return torch.stack([x[ids] for x in self.buffers()])

    def take(self, ids: Tensor, batch: Tensor, usable: Tensor) -> None:
        """Take one step of each of (n,) samples, with (numbers, n) that a batch of all ranks says.

        (n,) ``usable`` is 0 for padding, which may share its sample with others; 1, or a weight.
        """
        batch = batch.detach()
        usable = usable * batch.float().isfinite().all(0)
        groups = _SampleGroups(ids)
        first = groups.log_mean_exp if self.says_log else groups.mean
        merged = [first(batch[0], usable)]
        merged += [groups.mean(x, usable) for x in batch[1:]]
        old = self.read(ids).double()
        new = self.stepped(old, torch.stack(merged))
        new = torch.where(groups.sum(usable) > 0, new, old).float()
        for state, values in zip(self.buffers(), new):
            state[ids.long()] = values  # what is repeated has equal entries

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        if self.load_state:
            super()._load_from_state_dict(*args, **kwargs)

    def _misfit(self, saved: Tensor, buffer: Tensor) -> str:
        return (
            f'{saved.numel()} samples, but num_samples={self.size}: the checkpoint is of another '
            'training set. Train on the same data to resume; with other data set load_state=False '
            'of the loss to start with fresh per-sample values'
        )


def moving_log_mean(log_mean: Tensor, log_batch: Tensor, beta0: float) -> Tensor:
    """(n,) moving average of exponentials, ``log s <- log((1 - beta0) s + beta0 g)``.

    Where ``log s`` is not finite (a first visit) it becomes log g; where log g is -inf (no
    negatives) or NaN, log s stays. In the wider dtype of the two, without gradient.
    """
    dtype = torch.promote_types(log_mean.dtype, log_batch.dtype)
    old = log_mean.detach().to(dtype)
    new = log_batch.detach().to(dtype)
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
        momentum = torch.zeros_like(tau) if momentum is None else momentum
        momentum = torch.lerp(momentum, gradient.to(momentum.dtype), self.beta1)
        return (tau - self.eta * momentum).clamp(self.tau0, self.tau_max), momentum


class SampleLogMean(SampleState):
    """``log s`` of each sample: the log of a moving average of its g, -inf before the first visit.

    ``s <- (1 - beta0) s + beta0 g``. Source: SogCLR (ICML 2022), algorithm 1; iSogCLR (ICML 2023),
    eq. 12.
    """

    says_log = True
    log_s: Tensor  # (size,) float32 buffer

    def __init__(self, size: int, beta0: float = 0.9, load_state: bool = True) -> None:
        check_within('(0, 1]', beta0=beta0)
        super().__init__(size, load_state)
        self.beta0 = beta0
        self.add_state('log_s', (size,), -math.inf)

    def update(
        self,
        ids: Tensor,
        batch: Tensor,
        counts: Sequence[int] = (),
        group=None,
        weight: Tensor | None = None,
    ) -> None:
        """Take in (numbers, n) of the samples ``ids`` of a batch, if the state moves.

        The first number is log g, a second the gradient that the step takes. ``counts`` are the
        rows of each rank of ``group``, and ``weight`` is (n,) of the rows.
        """
        if not self.moves:
            return
        batch = batch.detach().double()
        if weight is not None:
            batch = torch.cat([batch, weight.double()[None]])
        if group is not None:
            rows = torch.cat([ids[None].double(), batch]).t()
            rows = all_gather_rows(rows, counts, group).t()
            ids = rows[0].long()
            batch = rows[1:]
        if weight is None:
            self.take(ids, batch, torch.ones_like(batch[0]))
        else:
            self.take(ids, batch[:-1], batch[-1])

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


def check_sample_ids(ids: Tensor, count: int, size: int = 2**62) -> None:
    """Check that ``ids`` is a (count,) tensor of samples; see :func:`check_index`."""
    if not isinstance(ids, Tensor):
        what = f'sample_idx must be a tensor of integers, got {type(ids).__name__}'
        fix = 'torch.as_tensor(sample_idx); a logit_scale goes into OpenCLIPLoss of mmrank.adapters'
        raise UserTypeError(what, fix)
    fix = 'num_samples=the length of the training set, whose samples are counted from 0'
    if ids.is_floating_point() and ids.dim() != 1:
        raise UserTypeError(
            f'sample_idx must be integers ({count},), got {ids.dtype} of shape {tuple(ids.shape)}. '
            'Fix: of a third view add up loss(view1, view2) and loss(view1, view3); a logit_scale '
            'goes into OpenCLIPLoss of mmrank.adapters'
        )
    check_index('sample_idx', ids, size, fix, shape=(count,))
