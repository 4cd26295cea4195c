"""InfoNCE and FlatCLR: the negatives of a batch, with one temperature."""

from dataclasses import replace

import torch
from torch import Tensor

from mmrank.checks import check_not_negative, check_positive
from mmrank.losses.options import ContrastiveOptions, Unpack

from .base import ContrastedBatch, ContrastiveLoss
from .terms import NegativeTerms, two_view_terms


def log_sum_of_negatives(terms: NegativeTerms) -> Tensor:
    """``log sum_z exp(h(z)/tau)`` of each anchor; 0 if it has no negatives.

    (n,), differentiable. Its sigmoid is the softmax probability of all negatives together.
    """
    log_sum = terms.log_mean + terms.log_count
    return torch.where(terms.count > 0, log_sum, 0)


def info_nce_losses(terms: NegativeTerms, positive_in_denominator: bool = True) -> Tensor:
    """InfoNCE of each anchor, see :class:`InfoNCELoss`; 0 for one without negatives."""
    has_negatives = terms.count > 0
    log_sum = log_sum_of_negatives(terms)
    if positive_in_denominator:
        log_sum = torch.logaddexp(log_sum, torch.zeros_like(log_sum))
    return torch.where(has_negatives, log_sum, log_sum * 0)


def info_nce_loss(
    view1: Tensor,
    view2: Tensor,
    tau: Tensor | float,
    sample_ids: Tensor | None = None,
    positive_in_denominator: bool = True,
) -> Tensor:
    """Mean InfoNCE of the 2B anchors of a batch of two (B, D) views, as SimCLR trains it.

    See :class:`mmrank.losses.InfoNCELoss`. ``tau`` > 0 is a number or (B,), one a sample; rows of
    one sample by their (B,) integer ``sample_ids`` are not negatives of each other.

    Example:
        >>> view = torch.eye(2)
        >>> round(float(info_nce_loss(view, view, tau=0.5)), 4)
        0.2395
    """
    terms = two_view_terms(view1, view2, tau, sample_ids)
    losses = info_nce_losses(terms, positive_in_denominator)
    return losses.sum() / max(losses.numel(), 1)


class InfoNCELoss(ContrastiveLoss):
    """Contrastive loss with one temperature over the negatives of the batch.

    ``-log exp(<a, a+>/tau) / (exp(<a, a+>/tau) + sum_z exp(<a, z>/tau))``, the mean over the
    anchors a. Source: van den Oord et al., Representation Learning with Contrastive Predictive
    Coding, 2018; SimCLR (ICML 2020), eq. 1.

    With two augmentations it is SimCLR (ICML 2020); with ``bimodal=True`` and images and texts as
    views it is CLIP (ICML 2021) of a fixed temperature.

    Args:
        tau: Temperature > 0. SimCLR takes 0.5 for CIFAR-10, 0.1 for ImageNet.
        bimodal: True: each view is contrasted with the other one of all other samples. False: with
            both views of them.
        positive_in_denominator: False leaves ``exp(<a, a+>/tau)`` out of the denominator, as
            iSogCLR (ICML 2023), eq. 1.
        hardness_strength: Weigh each negative z of an anchor a by ``exp(strength * <a, z>)``, a
            constant in backward. Source: Lan et al., LLaVE, 2025, eq. 5, which takes 9. As in
            sentence-transformers with ``hardness_mode='in_batch_negatives'``, in both directions.
        **kwargs: See :class:`ContrastiveLoss`.
    """

    def __init__(
        self,
        tau: float = 0.5,
        bimodal: bool = False,
        positive_in_denominator: bool = True,
        hardness_strength: float = 0.0,
        **kwargs: Unpack[ContrastiveOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau)
        check_not_negative(hardness_strength=hardness_strength)
        self.tau = float(tau)
        self.bimodal = bimodal
        self.positive_in_denominator = positive_in_denominator
        self.hardness_strength = float(hardness_strength)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over the two anchors of each sample."""
        sides = self._terms(batch)
        losses = [info_nce_losses(x, self.positive_in_denominator) for x in sides]
        return torch.cat(losses).view(2, batch.ids.numel()).mean(0)

    def _terms(self, batch: ContrastedBatch) -> list[NegativeTerms]:
        taus = [self.tau] * (2 if self.bimodal else 1)
        strength = self.hardness_strength
        if not strength:
            return batch.terms(taus)

        def penalised(x: Tensor) -> Tensor:
            # <a, z> (1 + strength tau), with the gradient of <a, z>.
            return torch.cat([x, (strength * self.tau) ** 0.5 * x.detach()], 1)

        view1 = penalised(batch.view1)
        view2 = penalised(batch.view2)
        all_view1 = view1
        all_view2 = view2
        if batch.all_view1 is not batch.view1:
            all_view1 = penalised(batch.all_view1)
            all_view2 = penalised(batch.all_view2)
        harder = replace(batch, view1=view1, view2=view2, all_view1=all_view1, all_view2=all_view2)
        sides = harder.terms(taus)
        batch.negatives = harder.negatives
        # Not for the positive.
        own = strength * (batch.view1 * batch.view2).sum(1).detach()
        for side in sides:
            side.log_mean = side.log_mean + own.repeat(2 // len(sides))
        return sides


class FlatCLRLoss(InfoNCELoss):
    """FlatNCE: each anchor's gradient keeps its size when the anchor is easy.

    The paper's loss is ``S / sg[S]`` with ``S = sum_z exp(h(z)/tau)`` over the negatives, h as in
    :class:`ISogCLRLoss`: its value is always 1. The value here is ``log S``, which has the same
    gradient and shows what is learnt. It is below 0 once the positive outweighs all negatives.
    Source: Chen et al., Simpler, Faster, Stronger: Breaking The log-K Curse On Contrastive Learners
    With FlatNCE, 2021. See :class:`InfoNCELoss` for the arguments.
    """

    def __init__(
        self, tau: float = 0.5, bimodal: bool = False, **kwargs: Unpack[ContrastiveOptions]
    ) -> None:
        super().__init__(tau, bimodal, positive_in_denominator=False, **kwargs)
