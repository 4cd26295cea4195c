"""SimCo, TaU + SimCLR and the spectral contrastive loss."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from mmrank.checks import check_positive
from mmrank.errors import UserError
from mmrank.losses.options import ContrastiveOptions, ScopeOptions, Unpack
from mmrank.losses.unit_rows import unit_rows
from mmrank.tensors import at_least_float32

from .base import ContrastedBatch, ContrastiveLoss
from .info_nce import info_nce_losses, log_sum_of_negatives
from .terms import NegativeTerms, negative_terms


def dual_temperature_losses(sharp: NegativeTerms, smooth: NegativeTerms) -> Tensor:
    """Loss of each anchor, see :class:`SimCoLoss`; 0 for one without negatives.

    ``W_b / W_a`` alone overflows for an anchor that is far from its negatives, but ``W_a`` cancels
    in the gradient: what is left is ``W_b`` times the softmax over the negatives. ``sharp`` are the
    terms at the small temperature, ``smooth``, without gradient, the terms at the large one.
    """
    has_negatives = sharp.count > 0
    log_sum = log_sum_of_negatives(sharp)
    weight = log_sum_of_negatives(smooth).detach().sigmoid()
    fixed = log_sum.detach()
    # -log p / W, which tends to 1 where both vanish.
    tiny = fixed < -50
    safe = torch.where(tiny, 0, fixed)
    ratio = torch.where(tiny, 1, softplus(safe) / safe.sigmoid())
    loss = weight * (ratio + (log_sum - fixed))
    return torch.where(has_negatives, loss, log_sum * 0)


class SimCoLoss(ContrastiveLoss):
    """Contrastive loss with one temperature in and one across anchors.

    ``-sg[W_b / W_a] log p_a`` with the softmax probability ``p`` of the positive and ``W = 1 - p``,
    at a small temperature a and a large one b: the small one weighs the negatives of an anchor
    against each other, the large one the anchors. With ``tau_inter=tau`` it is InfoNCE. Source:
    Zhang et al., Dual Temperature Helps Contrastive Learning Without Many Negative Samples, CVPR
    2022.

    Args:
        tau: Temperature > 0 within an anchor, weighs its negatives; the paper's is 0.1.
        tau_inter: Temperature across anchors, weighs them; the paper's is 1.
        bimodal: True: each view is contrasted with the other one of all other samples, as SimCo
            does it. False: with both views of them.
        **kwargs: See :class:`ContrastiveLoss`.
    """

    def __init__(
        self,
        tau: float = 0.1,
        tau_inter: float = 1.0,
        bimodal: bool = True,
        **kwargs: Unpack[ContrastiveOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau, tau_inter=tau_inter)
        self.tau = float(tau)
        self.tau_inter = float(tau_inter)
        self.bimodal = bimodal

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over the two anchors of each sample."""
        sides = 2 if self.bimodal else 1
        with torch.no_grad():
            smooth = batch.terms([self.tau_inter] * sides)
        sharp = batch.terms([self.tau] * sides)
        losses = [dual_temperature_losses(*x) for x in zip(sharp, smooth)]
        return torch.cat(losses).view(2, batch.ids.numel()).mean(0)


def capped_rows(x: Tensor, mu: float) -> Tensor:
    """Shorten (n, D) rows to a length of at most ``sqrt(mu)``, in at least float32."""
    x = at_least_float32(x)
    length = mu**0.5
    too_long = torch.linalg.vector_norm(x.detach(), dim=1, keepdim=True)
    return torch.where(too_long > length, length * unit_rows(x), x)


def spectral_losses(
    view1: Tensor, view2: Tensor, all_view2: Tensor, ids: Tensor, all_ids: Tensor
) -> Tensor:
    """Loss of each sample, see :class:`SpectralContrastiveLoss`; 0 for one without negatives."""
    with torch.autocast(view1.device.type, enabled=False):
        others = ids[:, None] != all_ids
        count = others.sum(1)
        squares = (view1 @ all_view2.t()).square()
        negative = torch.where(others, squares, 0).sum(1) / count.clamp(min=1)
        loss = negative - 2 * (view1 * view2).sum(1)
    return torch.where(count > 0, loss, loss * 0)


class SpectralContrastiveLoss(ContrastiveLoss):
    """Contrastive loss whose minimum factorises the graph of augmentations.

    ``-2 <a, a+> + mean_z <a, z>^2`` over ``mu``, with the second views z of all other samples.
    Embeddings are not normalised: longer ones than ``sqrt(mu)`` are shortened to it, as in the
    authors' code. Source: HaoChen et al., Provable Guarantees for Self-Supervised Deep Learning
    with Spectral Contrastive Loss, NeurIPS 2021.

    Args:
        mu: Largest squared length of an embedding, > 0.
        **kwargs: See :class:`ContrastiveLoss`, except ``normalize``.
    """

    def __init__(self, mu: float = 1.0, **kwargs: Unpack[ScopeOptions]) -> None:
        super().__init__(normalize=False, **kwargs)
        check_positive(mu=mu)
        self.mu = float(mu)

    def normalized(self, view: Tensor) -> Tensor:
        return capped_rows(view, self.mu)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Loss of each sample, its first view the anchor."""
        losses = spectral_losses(
            batch.view1, batch.view2, batch.all_view2, batch.ids, batch.all_ids
        )
        return losses / self.mu


class TaUSimCLRLoss(ContrastiveLoss):
    """SimCLR with a temperature that the network computes of each view.

    The network returns D + 1 numbers: an embedding, and e, by which the logits of that view as an
    anchor are ``cos * sigmoid(e) / tau``: its temperature is ``tau (1 + exp(-e))``, learned by the
    gradient of that anchor. Source: Zhang et al., Temperature as Uncertainty in Contrastive
    Learning, 2021, as their code computes it, and iSogCLR's for table 10 (ICML 2023). The papers
    print the inverse, a temperature of ``sigmoid(e) / tau``: a misprint. Set the ``out_channels``
    of the neck to one more than the embedding has.

    Args:
        tau: Temperature > 0 that no anchor goes below.
        positive_in_denominator: See :class:`InfoNCELoss`.
        **kwargs: See :class:`ContrastiveLoss`.
    """

    def __init__(
        self,
        tau: float = 0.1,
        positive_in_denominator: bool = False,
        **kwargs: Unpack[ContrastiveOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau)
        self.tau = float(tau)
        self.positive_in_denominator = positive_in_denominator

    def normalized(self, view: Tensor) -> Tensor:
        """(n, D + 1) rows, of which e is left as it is."""
        if view.size(1) < 2:
            raise UserError(
                f'TaUSimCLRLoss got views of {view.size(1)} columns, but needs an embedding and '
                'one more. Fix: out_channels of the neck'
            )
        rows = super().normalized(view[:, :-1])
        return torch.cat([rows, view[:, -1:].to(rows.dtype)], 1)

    def temperatures(self, rows: Tensor) -> Tensor:
        """(n,) temperatures, at least float32, of (n, D + 1) rows."""
        e = rows[:, -1]
        e = at_least_float32(e)
        # Below -15 the logits are as good as equal; exp would leave the range of float32.
        return self.tau * (1 + e.clamp(min=-15).neg().exp())

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over the two anchors of each sample."""
        tau = self.temperatures(torch.cat([batch.view1, batch.view2]))
        own = _without_e(batch)
        terms = negative_terms(
            torch.cat([own.view1, own.view2]),
            torch.cat([own.view2, own.view1]),
            torch.cat([own.all_view1, own.all_view2]),
            tau,
            batch.ids.repeat(2),
            batch.all_ids.repeat(2),
        )
        batch.negatives = terms.count.double().mean()
        if tau.numel():
            known = tau.detach()
            self.diagnostics |= {
                'tau_mean': known.mean(),
                'tau_min': known.min(),
                'tau_max': known.max(),
            }
        losses = info_nce_losses(terms, self.positive_in_denominator)
        return losses.view(2, batch.ids.numel()).mean(0)

    def _note(self, batch: ContrastedBatch) -> None:
        super()._note(_without_e(batch))


def _without_e(batch: ContrastedBatch) -> ContrastedBatch:
    """The batch with the embeddings alone, without the last column."""
    return replace(
        batch,
        view1=batch.view1[:, :-1],
        view2=batch.view2[:, :-1],
        all_view1=batch.all_view1[:, :-1],
        all_view2=batch.all_view2[:, :-1],
    )
