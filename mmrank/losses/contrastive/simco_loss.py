"""SimCo's loss with two temperatures as a registered loss."""

import torch
from torch import Tensor

from mmrank.losses.contrastive.info_nce import dual_temperature_losses

from .contrastive_loss import ContrastedBatch, ContrastiveLoss


class SimCoLoss(ContrastiveLoss):
    """Contrastive loss with one temperature in and one across anchors.

    ``tau`` weighs the negatives of an anchor against each other, ``tau_inter`` the anchors, see
    :func:`mmrank.functional.dual_temperature_losses`. With ``tau_inter=tau`` it is InfoNCE. Source:
    Zhang et al., Dual Temperature Helps Contrastive Learning Without Many Negative Samples, CVPR
    2022.

    Args:
        tau: Temperature > 0 within an anchor; the paper's is 0.1.
        tau_inter: Temperature across anchors; the paper's is 1.
        bimodal: True: each view is contrasted with the other one of all other samples, as SimCo
            does it. False: with both views of them.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        tau: float = 0.1,
        tau_inter: float = 1.0,
        bimodal: bool = True,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
        gather: str = 'all',
    ) -> None:
        super().__init__(normalize=normalize, scope=scope, loss_weight=loss_weight, gather=gather)
        for name, value in (('tau', tau), ('tau_inter', tau_inter)):
            if not value > 0:
                raise ValueError(f'{name} must be > 0, got {value!r}')
        self.tau, self.tau_inter = float(tau), float(tau_inter)
        self.bimodal = bimodal

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over the two anchors of each sample."""
        sides = 2 if self.bimodal else 1
        with torch.no_grad():
            smooth = batch.terms([self.tau_inter] * sides)
        sharp = batch.terms([self.tau] * sides)
        losses = [dual_temperature_losses(*x) for x in zip(sharp, smooth)]
        return torch.cat(losses).view(2, batch.ids.numel()).mean(0)
