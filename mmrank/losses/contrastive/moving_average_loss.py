"""What contrastive losses with a moving average per sample share."""

import math

import torch
from torch import Tensor

from mmrank.functional.contrastive.global_contrastive import (
    global_contrastive_loss,
    moving_log_mean,
)
from mmrank.functional.contrastive.negative_terms import NegativeTerms
from mmrank.state.samples.sample_log_mean import SampleLogMean

from .contrasted_batch import ContrastedBatch
from .contrastive_loss import ContrastiveLoss


class MovingAverageLoss(ContrastiveLoss):
    """Base of SogCLR and iSogCLR.

    The mean of exp over the negatives of a small batch is a poor estimate of
    that over the data set, so it is averaged over the visits of a sample.
    The two views of a sample share one average s. Each view takes its own
    step from it for the gradient, and what is kept is their mean; so with
    ``beta0=1`` the gradient is tau times that of InfoNCE without the positive
    in the denominator.

    The state is the same on all ranks and for any world size with
    ``scope='global'``. With ``scope='local'`` it is the same on all ranks, of
    the negatives that each sample met on its own rank.

    Args:
        normalize: Give embeddings length 1, so that similarities are cosines.
        scope: ``global``: negatives from all ranks. ``local``: from this one.
        loss_weight: Factor of the whole loss.
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

    def tau_gradient(
        self, terms: NegativeTerms, log_s: Tensor, tau: Tensor
    ) -> Tensor | None:
        """(anchors,) gradient in the temperature, or None if it is fixed."""
        return None

    def prefetch(self, sample_idx: Tensor, device: torch.device) -> None:
        """See :meth:`ContrastiveLoss.prefetch`."""
        for state in self.states():
            state.prefetch(sample_idx, device)

    def row_losses(
        self, batch: ContrastedBatch, sample_idx: Tensor, group
    ) -> Tensor:
        """Losses of the samples; then the state takes in the batch."""
        n, device = batch.ids.numel(), batch.ids.device
        states = self.states()
        for state in states:
            state.check_ids(sample_idx, n)
        entries = [x.fetch(sample_idx, device) for x in states]
        taus = [self.temperatures(*x) for x in zip(states, entries)]
        losses = []
        for state, old, tau, terms in zip(
            states, entries, taus, batch.terms(taus)
        ):
            views = terms.count.numel() // n if n else 1
            tau = tau.repeat(views)
            log_s = moving_log_mean(
                old[0].repeat(views), terms.log_mean, state.beta0
            )
            loss = global_contrastive_loss(
                terms.log_mean, log_s, tau, self.rho, self.tau0
            )
            losses.append(loss.view(views, n).mean(0))
            log_g = terms.log_mean.detach().view(views, n)
            gradient = self.tau_gradient(terms, log_s, tau)
            if gradient is not None:
                gradient = gradient.view(views, n).mean(0)
            state.update(
                batch.ids,
                old,
                log_g.logsumexp(0) - math.log(views),
                gradient,
                batch.counts,
                group,
            )
            self._note_side(state, tau[:n], log_s, gradient)
        return sum(losses)

    @torch.no_grad()
    def _note_side(
        self,
        state: SampleLogMean,
        tau: Tensor,
        log_s: Tensor,
        gradient: Tensor | None,
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
            }
        self.diagnostics |= {prefix + k: v for k, v in noted.items()}

    def prefix_of(self, state: SampleLogMean) -> str:
        """What the diagnostics of a state are called by."""
        return ''
