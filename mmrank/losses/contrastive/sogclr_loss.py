"""SogCLR as a registered loss, and its base, a moving average per sample."""

import math

import torch
from torch import Tensor

from mmrank.losses.contrastive.global_contrastive import global_contrastive_loss
from mmrank.losses.contrastive.negative_terms import NegativeTerms
from mmrank.state.samples.sample_log_mean import SampleLogMean
from mmrank.state.samples.steps import moving_log_mean

from .contrastive_loss import ContrastedBatch, ContrastiveLoss


class MovingAverageLoss(ContrastiveLoss):
    """Base of SogCLR and iSogCLR.

    The mean of exp over the negatives of a small batch is a poor estimate of that over the data
    set, so it is averaged over the visits of a sample.
    The two views of a sample share one average s. Each view takes its own
    step from it for the gradient, and what is kept is their mean; so with ``beta0=1`` the gradient
    is tau times that of InfoNCE without the positive in the denominator.

    The state is the same on all ranks and for any world size with ``scope='global'``. With
    ``scope='local'`` it is the same on all ranks, of the negatives that each sample met on its own
    rank.
    """

    keeps_samples = True
    rho, tau0 = 0.0, 0.0

    def states(self) -> list[SampleLogMean]:
        """State of the anchors: one, or one for each modality."""
        raise NotImplementedError

    @property
    def num_samples(self) -> int:
        """Number of samples that the state is for."""
        return self.states()[0].size

    def temperatures(self, state: SampleLogMean, entries: Tensor) -> Tensor:
        """(n,) temperatures of the samples that ``entries`` belong to."""
        raise NotImplementedError

    def tau_gradient(self, terms: NegativeTerms, log_s: Tensor, tau: Tensor) -> Tensor | None:
        """(anchors,) gradient in the temperature, or None if it is fixed."""
        return None

    def prefetch(self, sample_idx: Tensor, device: torch.device) -> None:
        """See :meth:`ContrastiveLoss.prefetch`."""
        for state in self.states():
            state.prefetch(sample_idx, device)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor, group) -> Tensor:
        """Losses of the samples; then the state takes in the batch."""
        n, device = batch.ids.numel(), batch.ids.device
        states = self.states()
        for state in states:
            state.check_ids(sample_idx, n)
        entries = [x.fetch(sample_idx, device) for x in states]
        taus = [self.temperatures(*x) for x in zip(states, entries)]
        losses = []
        for state, old, tau, terms in zip(states, entries, taus, batch.terms(taus)):
            views = terms.count.numel() // n if n else 1
            tau = tau.repeat(views)
            log_s = moving_log_mean(old[0].repeat(views), terms.log_mean, state.beta0)
            loss = global_contrastive_loss(terms.log_mean, log_s, tau, self.rho, self.tau0)
            losses.append(loss.view(views, n).mean(0))
            log_g = terms.log_mean.detach().view(views, n)
            gradient = self.tau_gradient(terms, log_s, tau)
            if gradient is not None:
                gradient = gradient.view(views, n).mean(0)
            state.update(
                batch.ids, old, log_g.logsumexp(0) - math.log(views), gradient, batch.counts, group
            )
            self._note_side(state, tau[:n], log_s, gradient)
        return sum(losses)

    @torch.no_grad()
    def _note_side(
        self, state: SampleLogMean, tau: Tensor, log_s: Tensor, gradient: Tensor | None
    ) -> None:
        if not tau.numel():
            return
        prefix = self.prefix_of(state)
        seen = log_s.isfinite()
        total = torch.where(seen, log_s, 0).sum()
        noted = {'log_s': total / seen.sum().clamp(min=1)}
        if gradient is not None:
            noted |= {
                'tau_mean': tau.mean(),
                'tau_min': tau.min(),
                'tau_max': tau.max(),
                'tau_gain': self.gain_of_a_visit(state, tau),
            }
        self.diagnostics |= {prefix + k: v for k, v in noted.items()}

    def gain_of_a_visit(self, state: SampleLogMean, tau: Tensor) -> Tensor:
        """() how far a visit moves a temperature that is learned."""
        return tau.new_zeros(())

    def prefix_of(self, state: SampleLogMean) -> str:
        """What the diagnostics of a state are called by."""
        return ''


class SogCLRLoss(MovingAverageLoss):
    """Global contrastive loss with one fixed temperature.

    ``tau log mean_z exp(h(z)/tau)`` over the negatives z of the data set,
    with ``h(z) = <a, z> - <a, a+>``, estimated with a moving average per sample. Source: Yuan et
    al., Provable Stochastic Optimization for Global Contrastive Learning, ICML 2022; for images and
    texts Qiu et al., Not All Semantics are Created Equal, ICML 2023, section 3, whose two losses
    are added.

    For two augmentations this is iSogCLR's form with a fixed temperature. SogCLR's authors average
    ``exp(<a, z>/tau)`` instead and add the positive outside of the logarithm. The two losses are
    equal where s is that of the batch (``beta0=1``); here a moving average also holds the positives
    of earlier visits.

    Args:
        num_samples: Number of samples in the training set.
        tau: Temperature > 0.
        beta0: Weight of the batch in the moving average, in (0, 1]. The iSogCLR paper compares 0.7,
            0.8 and 0.9.
        bimodal: True: the views are modalities; each is contrasted with the other one of all other
            samples and has an average of its own. False: with both views of them, one average for
            both.
        storage: Where the state is kept: ``device``, ``host`` or ``sharded`` over the ranks. See
            :class:`mmrank.state.SampleState`.
        load_state: False resets the state when a checkpoint is loaded.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        num_samples: int,
        tau: float = 0.1,
        beta0: float = 0.9,
        bimodal: bool = False,
        storage: str = 'device',
        load_state: bool = True,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
        gather: str = 'all',
    ) -> None:
        super().__init__(normalize=normalize, scope=scope, loss_weight=loss_weight, gather=gather)
        if not tau > 0:
            raise ValueError(f'tau must be > 0, got {tau!r}')
        self.tau, self.bimodal = float(tau), bimodal
        self._prefixes = ('image_', 'text_') if bimodal else ('',)
        for prefix in self._prefixes:
            average = SampleLogMean(num_samples, beta0, storage, load_state)
            self.add_module(f'{prefix}average', average)

    def states(self) -> list[SampleLogMean]:
        """The averages: one, or those of images and of texts."""
        return [getattr(self, f'{x}average') for x in self._prefixes]

    def prefix_of(self, state: SampleLogMean) -> str:
        """Images or texts, if they are apart."""
        return self._prefixes[self.states().index(state)]

    def temperatures(self, state: SampleLogMean, entries: Tensor) -> Tensor:
        """The one temperature, for every sample."""
        return torch.full_like(entries[0], self.tau)
