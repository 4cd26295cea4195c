"""SogCLR, and iSogCLR, which learns a temperature of each sample."""

import math
from typing import Any, cast

import torch
from torch import Tensor

from mmrank.settings import check_not_negative, check_positive
from mmrank.state.sample_state import (
    SampleLogMean,
    SampleTemperature,
    TemperatureStep,
    moving_log_mean,
)

from .base import ContrastedBatch, ContrastiveLoss


def global_contrastive_loss(
    log_batch: Tensor, log_mean: Tensor, tau: Tensor | float, rho: float = 0.0, tau0: float = 0.0
) -> Tensor:
    """Robust global contrastive loss of each anchor, ``tau log s + (tau - tau0) rho``.

    The dual form of the robust loss, with the gradient ``(tau/s) grad g``, in which tau and s are
    constants. Source: iSogCLR (ICML 2023), eq. 7 and 14; with ``rho=0`` and one tau it is SogCLR
    (ICML 2022). ``log_batch`` is (n,) log g of the batch with gradient, ``log_mean`` log s. The
    losses are 0 for an anchor without negatives.
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


class MovingAverageLoss(ContrastiveLoss):
    """Base of SogCLR, iSogCLR, TempNet and NUCLR.

    The mean of exp over the negatives of a small batch is a poor estimate of the mean over the data
    set, so it is averaged over the visits of a sample. The views of a sample share one average s.
    Each view takes its own step from it for the gradient, and their mean is kept. With labels the
    negatives are the samples of another label.
    """

    keeps_samples = True
    takes_labels = True
    learn_temperature = False  # of each sample
    state_name = 'average'
    prefixes = ('',)
    rho = tau0 = 0.0

    @property
    def two_views(self) -> bool:
        return len(self.prefixes) == 2

    def states(self) -> list[Any]:
        """State of the anchors: one, or one for each modality."""
        return [getattr(self, x + self.state_name) for x in self.prefixes]

    def temperatures(self, entries: Tensor, batch: ContrastedBatch) -> Tensor:
        """(k, n) temperatures, of the (quantities, k, n) entries of n samples in k states."""
        raise NotImplementedError

    @property
    def num_samples(self) -> int:
        """Number of samples that the state is for."""
        return self.states()[0].size

    def entries(self, batch: ContrastedBatch) -> Tensor:
        """(quantities, k, n) entries of the samples of a batch in k states."""
        index = cast(Tensor, batch.sample_idx)  # the base refuses None
        return torch.stack([x.fetch(index, batch.local.ids.device) for x in self.states()], 1)

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        ids = batch.local.ids
        states = self.states()
        entries = self.entries(batch)
        tau = self.temperatures(entries, batch)
        terms = self.terms(batch, tau.detach(), bimodal=len(states) == 2, true_negatives=True)
        log_s = moving_log_mean(entries[0], terms.log_mean, states[0].beta0)
        losses = global_contrastive_loss(terms.log_mean, log_s, tau, self.rho, self.tau0)
        # ``G = (tau/s) dg/dtau + log s + rho`` with ``dg/dtau = -g mean_h/tau^2``: iSogCLR (ICML
        # 2023), eq. 13, whose 1/n is part of the step size. Without negatives it is not finite.
        ratio = (terms.log_mean.detach() - log_s).exp()
        slope = log_s + self.rho - ratio * terms.mean_h.detach() / tau.detach()
        if tau.requires_grad:
            # The value is in the loss already.
            losses = losses + torch.where(terms.count > 0, slope, 0) * (tau - tau.detach())
        # Each view of its state: the mean over those of one state.
        shape = len(states), len(batch.local.views) // len(states), len(ids)
        log_g = terms.log_mean.detach().view(shape).logsumexp(1) - math.log(shape[1])
        numbers = log_g[:, None]
        if self.learn_temperature:
            numbers = torch.stack([log_g, slope.view(shape).mean(1)], 1)
        for k, state in enumerate(states):
            rest = batch.counts, batch.group, batch.local.weight
            state.update(ids, numbers[k], *rest)
            if len(ids):
                self._note_state(self.prefixes[k], state, log_s.view(shape)[k], tau[k])
        return losses.view(shape).mean(1).sum(0)

    @torch.no_grad()
    def _note_state(self, prefix: str, state: SampleLogMean, log_s: Tensor, tau: Tensor) -> None:
        seen = log_s.isfinite()
        noted = {'log_s': torch.where(seen, log_s, 0).sum() / seen.sum().clamp(min=1)}
        if isinstance(state, SampleTemperature):
            noted |= {'tau_mean': tau.mean(), 'tau_min': tau.min(), 'tau_max': tau.max()}
            # How far a visit moves a temperature.
            noted['tau_gain'] = (2 * state.step.eta * self.rho / tau).mean()
        else:
            noted['tau'] = tau.mean()
        self.diagnostics |= {prefix + name: value for name, value in noted.items()}


class SogCLRLoss(MovingAverageLoss):
    """Global contrastive loss with one temperature.

    ``tau log mean_z exp(h(z)/tau)`` over the negatives z of the data set, with ``h(z) = <a, z> -
    <a, a+>``, estimated with a moving average per sample. Source: Yuan et al., Provable Stochastic
    Optimization for Global Contrastive Learning, ICML 2022; for images and texts Qiu et al., Not
    All Semantics are Created Equal, ICML 2023, section 3, whose two losses are added. SogCLR's
    authors average ``exp(<a, z>/tau)`` instead and add the positive outside of the logarithm, which
    is equal where s is the batch's s (``beta0=1``).

    With ``rho`` the temperature is learned, as the parameter ``log_tau`` of the robust loss ``tau
    (log mean_z exp(h(z)/tau) + rho)``: FastCLIP-v3 of Wei et al., 2024, arXiv 2407.01445, whose
    loss is half of ours. Its v1 and v2 are this and :class:`BimodalISogCLRLoss` with
    ``mmrank.CosineBeta0Hook``.

    Args:
        num_samples: Number of samples, or pairs, in the training set.
        tau: Temperature > 0, at the start if it is learned.
        rho: None: the temperature is fixed. >= 0: it is learned, and falls until the logarithm of
            the mean is about -rho and more. FastCLIP tunes 6.5 to 11. Spare ``log_tau`` the weight
            decay, see :class:`CLIPLoss`.
        tau_min: A learned temperature stays above, and below 1.
        beta0: Weight of the batch in the moving average, in (0, 1].
        bimodal: Contrast each view with the other one of all other samples, with an average of its
            own; else with both views of them, with one average.
        load_state: False resets the state when a checkpoint is loaded.
    """

    def __init__(
        self,
        num_samples: int,
        tau: float = 0.1,
        rho: float | None = None,
        tau_min: float = 0.01,
        beta0: float = 0.9,
        bimodal: bool = False,
        load_state: bool = True,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau, tau_min=tau_min)
        bounds = None
        if rho is not None:
            check_not_negative(rho=rho)
            self.rho = float(rho)
            bounds = dict(tau_min=tau_min, tau=tau, largest_tau=1.0)
        self.set_temperature(tau, bounds)
        if bimodal:
            self.prefixes = ('image_', 'text_')
        for prefix in self.prefixes:
            average = SampleLogMean(num_samples, beta0, load_state)
            self.add_module(f'{prefix}average', average)

    def temperatures(self, entries: Tensor, batch: ContrastedBatch) -> Tensor:
        tau = self.shared_temperature()
        if isinstance(tau, Tensor):
            return tau.expand_as(entries[0])
        return torch.full_like(entries[0], tau)


class ISogCLRLoss(MovingAverageLoss):
    """Robust global contrastive loss with a temperature for each sample.

    ``tau_i log mean_z exp(h_i(z)/tau_i) + (tau_i - tau0) rho`` over both views z of all other
    samples, with ``h_i(z) = <a_i, z> - <a_i, a_i+>``. Samples with many similar ones get larger
    temperatures. Source: Qiu et al., Not All Semantics are Created Equal, ICML 2023. Equations 13
    and 14 print s before the step of the batch; the authors' code and this take s after it. The
    temperatures are not parameters of the optimiser: in training mode, forward steps them.

    Args:
        num_samples: Number of samples, or pairs, in the training set.
        rho: Radius of the ball around uniform weights of the negatives, > 0: smaller ones give
            larger temperatures. The paper compares 0.1, 0.2, 0.3 and 0.4 for two augmentations.
        tau_init: Temperature at the start.
        tau0: Smallest temperature, > 0.
        tau_max: Largest temperature; the paper does not state it.
        eta: Step size of the temperatures; the authors' code has 0.03 for two augmentations. A
            visit moves a temperature by about ``2 eta rho / tau`` of the way to where its batch
            would have it (``tau_gain`` in the log): near 1 it repeats its last batch, and 0.05 to
            0.1 takes 100 visits of a sample and more. ``mmrank.RankingMonitorHook`` warns above
            0.5.
        beta0: Weight of the batch in the moving average; the paper compares 0.7, 0.8 and 0.9.
        beta1: Weight of the new gradient in the momentum of the temperature, 1: none; the authors'
            code has 0.5.
        load_state: False resets the state when a checkpoint is loaded. It has 12 bytes per sample
            and temperature, 8 without momentum.
        gradient_clip: Largest size of the gradient of a temperature; None: any. The authors' code
            has 3 for two augmentations and 5 for images and texts.
    """

    learn_temperature = True
    state_name = 'temperature'

    def __init__(
        self,
        num_samples: int,
        rho: float = 0.3,
        tau_init: float = 0.7,
        tau0: float = 0.05,
        tau_max: float = 1.0,
        eta: float = 0.001,
        beta0: float = 0.9,
        beta1: float = 0.9,
        load_state: bool = True,
        gradient_clip: float | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(rho=rho)
        self.rho = float(rho)
        step = TemperatureStep(eta, beta1, tau_init, tau0, tau_max, gradient_clip)
        for prefix in self.prefixes:
            state = SampleTemperature(num_samples, beta0, step, load_state)
            self.add_module(f'{prefix}temperature', state)

    @property
    def tau0(self) -> float:
        """The smallest temperature, of every state."""
        return self.states()[0].step.tau0

    def temperatures(self, entries: Tensor, batch: ContrastedBatch) -> Tensor:
        return entries[1]


class BimodalISogCLRLoss(ISogCLRLoss):
    """Robust global contrastive loss of pairs, with two temperatures each.

    The image of a pair is contrasted with the texts of all other pairs, and its text with their
    images; the two losses are added. Source: Qiu et al., Not All Semantics are Created Equal, ICML
    2023, appendix B. For ``rho`` the paper compares 5.8, 6.0, 6.2 and 6.4 at a batch of 512: with
    ``log(B - 1) <= rho`` temperatures only fall, but for what the moving average adds.
    """

    prefixes = ('image_', 'text_')

    def __init__(
        self,
        num_samples: int,
        rho: float = 6.0,
        tau_init: float = 0.01,
        tau0: float = 0.005,
        tau_max: float = 0.05,
        **kwargs,
    ) -> None:
        super().__init__(num_samples, rho, tau_init, tau0, tau_max, **kwargs)
