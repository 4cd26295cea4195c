"""NUCLR: the negatives of a data set weigh by a margin that is learned of each."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from mmrank.distributed import all_gather_rows
from mmrank.settings import check_positive
from mmrank.state.sample_state import SampleLogMean, moving_log_mean

from .base import ContrastedBatch
from .sogclr import MovingAverageLoss, global_contrastive_loss
from .terms import Samples


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


class NUCLRLoss(MovingAverageLoss):
    """Global contrastive loss of pairs, with a learned margin of each image and each text.

    ``tau log(mean_z exp((h(z) - zeta_z)/tau) + exp(-xi/tau)/(N - 1))`` with ``h(z) = <a, z> - <a,
    a+>`` over the negatives z of the data set, estimated with a moving average per sample; added
    for images among texts and texts among images. A popular z, which fits many anchors, gets a
    large margin ``zeta_z``, so that the texts that an image fits as well are pushed away less:
    the sum estimates an integral over all texts, in which z stands for ``exp(-zeta_z/tau)`` of
    them. ``xi`` is the largest margin, and at least 0. The margins solve ``mean_a p(z | a) = 1/N``
    with p the softmax of z. Source: Wang et al., On Discriminative Probabilistic Modeling for
    Self-Supervised Representation Learning, ICLR 2025, algorithm 1, as in the authors' code, where
    xi is of the last epoch. The margins are not parameters of the optimiser: in training mode,
    forward steps them.

    Args:
        num_samples: Number of pairs in the training set, N.
        tau: Temperature > 0; the authors take 0.01.
        eta: Step size of the margins of the texts, > 0, of the images a tenth. The authors begin
            after 5 epochs of 30 and lower it by a cosine, and to a tenth and a hundredth: set
            ``eta`` of ``loss.image_margin`` and ``loss.text_margin``, 0 for no step.
        beta0: Weight of the batch in the moving average, in (0, 1]; the authors take 0.8.
        load_state: False resets the state when a checkpoint is loaded.
    """

    takes_labels = False  # its margins say how likely a negative is a true one
    prefixes = ('image_', 'text_')
    state_name = 'margin'

    def __init__(
        self,
        num_samples: int,
        tau: float = 0.01,
        eta: float = 5e-6,
        beta0: float = 0.8,
        load_state: bool = True,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau, eta=eta)
        self.tau = float(tau)
        for prefix, step in zip(self.prefixes, (eta / 10, eta)):
            state = SampleMargin(num_samples, beta0, step, load_state)
            self.add_module(f'{prefix}margin', state)

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        tau = self.tau
        states = self.states()
        old_log_s, zeta, _, largest = self.entries(batch)
        # Of what the anchors in a row are compared with.
        other_zeta = zeta.flip(0)
        xi = largest.flip(0).clamp(min=0)
        log_others = math.log(max(self.num_samples - 1, 1))
        terms = self.terms(_with_logits(batch, -zeta), tau, bimodal=True)
        log_g = terms.log_mean - other_zeta / tau
        log_s = moving_log_mean(old_log_s, log_g, states[0].beta0)
        with_rest = torch.logaddexp(log_s, -xi / tau - log_others)
        losses = global_contrastive_loss(log_g, with_rest, tau)
        with torch.no_grad():
            # What a softmax of an anchor gives its own positive and the others, with its positive
            # in the denominator.
            log_total = torch.logaddexp(log_s, -other_zeta / tau - log_others)
            positive = (batch.local.views[0] * batch.local.views[1]).sum(1)
            shares = _with_logits(batch, -positive - tau * log_total).terms(tau, bimodal=True)
            others = torch.where(shares.count > 0, shares.log_mean + shares.log_count, -math.inf)
            log_share = -zeta / tau - log_total.flip(0)
            mean = torch.logaddexp(log_share, log_share + others).exp() / (shares.count + 1)
            slope = 1 - mean * self.num_samples / max(self.num_samples - 1, 1)
        for k, state in enumerate(states):
            rest = batch.counts, batch.group, batch.local.weight
            state.update(batch.local.ids, torch.stack([log_g[k], slope[k]]), *rest)
            if zeta.numel():
                self.diagnostics[f'{self.prefixes[k]}zeta_mean'] = zeta[k].mean()
                self.diagnostics[f'{self.prefixes[k]}zeta_max'] = zeta[k].max()
        return losses.sum(0)


def _with_logits(batch: ContrastedBatch, logits: Tensor) -> ContrastedBatch:
    """The batch whose similarities are ``<x, y>`` and the (2, n) logits of the image and text.

    The logit of an anchor is in h of none of its negatives, the logit of the own positive in all.
    """
    ones = torch.ones_like(logits[0])
    columns = torch.stack([logits[0], ones, ones, logits[1]], 1).to(batch.local.views[0].dtype)
    local = _widened(batch.local, columns)
    if batch.is_whole:
        return replace(batch, local=local, gathered=local)
    columns = all_gather_rows(columns, batch.counts, batch.group)
    return replace(batch, local=local, gathered=_widened(batch.gathered, columns))


def _widened(samples: Samples, columns: Tensor) -> Samples:
    """The samples with two of the (n, 4) columns behind each of their views."""
    pairs = zip(samples.views, columns.chunk(2, 1))
    return replace(samples, views=[torch.cat(pair, 1) for pair in pairs])
