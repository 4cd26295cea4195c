"""InfoNCE and FlatCLR as registered losses."""

import torch
from torch import Tensor

from mmrank.losses.contrastive.info_nce import info_nce_losses

from .contrastive_loss import ContrastedBatch, ContrastiveLoss


class InfoNCELoss(ContrastiveLoss):
    """Contrastive loss with one temperature over the negatives of the batch.

    With two augmentations it is SimCLR (ICML 2020); with ``bimodal=True``
    and images and texts as views it is CLIP (ICML 2021) of a fixed temperature.

    Args:
        tau: Temperature > 0. SimCLR takes 0.5 for CIFAR-10, 0.1 for ImageNet.
        bimodal: True: each view is contrasted with the other one of all other samples. False: with
            both views of them.
        positive_in_denominator: False leaves the positive out of the denominator, as iSogCLR (ICML
            2023) writes the loss in eq. 1.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        tau: float = 0.5,
        bimodal: bool = False,
        positive_in_denominator: bool = True,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
        gather: str = 'all',
    ) -> None:
        super().__init__(normalize=normalize, scope=scope, loss_weight=loss_weight, gather=gather)
        if not tau > 0:
            raise ValueError(f'tau must be > 0, got {tau!r}')
        self.tau, self.bimodal = float(tau), bimodal
        self.positive_in_denominator = positive_in_denominator

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over the two anchors of each sample."""
        sides = batch.terms([self.tau] * (2 if self.bimodal else 1))
        losses = [info_nce_losses(x, self.positive_in_denominator) for x in sides]
        return torch.cat(losses).view(2, batch.ids.numel()).mean(0)


class FlatCLRLoss(InfoNCELoss):
    """FlatNCE: each anchor's gradient keeps its size when the anchor is easy.

    The paper's loss is ``S / sg[S]`` with ``S = sum_z exp(h(z)/tau)`` over
    the negatives, h as in :class:`ISogCLRLoss`: its value is always 1. The value here is ``log S``,
    which has the same gradient and shows what is learnt. It is below 0 once the positive outweighs
    all negatives. Source: Chen et al., Simpler, Faster, Stronger: Breaking The log-K Curse On
    Contrastive Learners With FlatNCE, 2021.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        tau: float = 0.5,
        bimodal: bool = False,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
        gather: str = 'all',
    ) -> None:
        super().__init__(
            tau,
            bimodal,
            positive_in_denominator=False,
            normalize=normalize,
            scope=scope,
            loss_weight=loss_weight,
            gather=gather,
        )
