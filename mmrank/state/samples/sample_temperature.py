"""A temperature for each sample."""

import torch
from torch import Tensor

from mmrank.state.samples.steps import moving_log_mean, temperature_step

from .sample_log_mean import SampleLogMean

MOMENTUM_DTYPES = {'float32': torch.float32, 'float16': torch.float16}


class SampleTemperature(SampleLogMean):
    """Learned temperature, its momentum and log s of each sample.

    Source: iSogCLR (ICML 2023), algorithm 1. With ``beta1=1`` there is no momentum and nothing is
    kept of it: 8 instead of 12 bytes per sample.

    Args:
        size: Number of samples in the training set.
        beta0: Weight of the batch in s, in (0, 1].
        beta1: Weight of the new gradient in its momentum, in (0, 1].
        eta: Step size of the temperatures, > 0.
        tau_init: Temperature at the start.
        tau0: Smallest temperature, > 0.
        tau_max: Largest temperature.
        storage: See :class:`SampleState`.
        load_state: See :class:`SampleState`.
        momentum_dtype: ``float32`` or ``float16``: 10 instead of 12 bytes per sample, for an error
            of up to 0.05 % of the momentum in a step. Then runs on different numbers of ranks agree
            to that only; a resumed run is still the same.
        gradient_clip: The gradient of a temperature counts as at most this, and at least its
            negative; None: in full.

    Attributes:
        tau: (size,) float32.
        log_s: (size,) float32, -inf before the first visit.
        u: (size,) momentum of ``momentum_dtype``, if ``beta1 < 1``.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        size: int,
        beta0: float = 0.9,
        beta1: float = 0.9,
        eta: float = 0.001,
        tau_init: float = 0.7,
        tau0: float = 0.05,
        tau_max: float = 1.0,
        storage: str = 'device',
        load_state: bool = True,
        momentum_dtype: str = 'float32',
        gradient_clip: float | None = None,
    ) -> None:
        if gradient_clip is not None and not gradient_clip > 0:
            raise ValueError(f'gradient_clip must be > 0 or None, got {gradient_clip!r}')
        if momentum_dtype not in MOMENTUM_DTYPES:
            raise ValueError(
                f'momentum_dtype={momentum_dtype!r} is unknown; use one of {tuple(MOMENTUM_DTYPES)}'
            )
        if not 0 < beta1 <= 1:
            raise ValueError(f'beta1 must be in (0, 1], got {beta1!r}')
        if not eta > 0:
            raise ValueError(
                f'eta must be > 0, got {eta!r}; for a fixed temperature use mmrank.SogCLRLoss'
            )
        if not 0 < tau0 <= tau_init <= tau_max < float('inf'):
            raise ValueError(
                f'temperatures must satisfy 0 < tau0 <= tau_init <= tau_max, got tau0={tau0!r}, '
                f'tau_init={tau_init!r}, tau_max={tau_max!r}'
            )
        momentum = {} if beta1 == 1 else {'u': 0.0}
        super().__init__(
            size,
            beta0,
            storage=storage,
            load_state=load_state,
            dtypes=dict(u=MOMENTUM_DTYPES[momentum_dtype]),
            tau=tau_init,
            **momentum,
        )
        self.gradient_clip = gradient_clip
        self.beta1, self.eta, self.tau0, self.tau_max = (beta1, eta, tau0, tau_max)

    @property
    def tau(self) -> Tensor:
        """(size,) float32."""
        return self.column('tau')

    @property
    def u(self) -> Tensor:
        """(size,) of ``momentum_dtype``."""
        return self.column('u')

    def stepped(self, entries: Tensor, log_batch: Tensor, gradient: Tensor) -> Tensor:
        """One step of each entry.

        Args:
            entries: (quantities, n) float64: log s, tau and u.
            log_batch: (n,) log g.
            gradient: (n,) G of the temperature.

        Returns:
            (quantities, n).
        """
        log_s, tau, *momentum = entries
        if self.gradient_clip is not None:
            gradient = gradient.clamp(-self.gradient_clip, self.gradient_clip)
        tau, u = temperature_step(
            tau,
            momentum[0] if momentum else torch.zeros_like(tau),
            gradient,
            eta=self.eta,
            beta1=self.beta1,
            tau0=self.tau0,
            tau_max=self.tau_max,
        )
        log_s = moving_log_mean(log_s, log_batch, self.beta0)
        return torch.stack([log_s, tau, u][: len(entries)])
