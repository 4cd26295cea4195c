"""TaU + SimCLR: a temperature that the network computes, as a loss."""

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.losses.contrastive.info_nce import info_nce_losses
from mmrank.losses.contrastive.negative_terms import negative_terms

from .contrastive_loss import ContrastedBatch, ContrastiveLoss


class TaUSimCLRLoss(ContrastiveLoss):
    """SimCLR with a temperature that the network computes of each view.

    The network returns D + 1 numbers: an embedding, and e, from which the temperature of that view
    as an anchor is ``sigmoid(e) / t``. It is learned by the gradient of the InfoNCE of that anchor.
    Source: Zhang et al., Temperature as Uncertainty in Contrastive Learning, 2021, as iSogCLR (ICML
    2023), appendix C.3 and table 10, compares it.

    Set the ``out_channels`` of the neck to one more than the embedding has.

    Args:
        scale: t > 0. The temperatures lie in (0, 1/t), at 0.5/t for e = 0.
        tau_min: Smallest temperature, > 0: below it there is no gradient in
            e.

    Raises:
        ValueError: On a parameter out of range.
        UserError: If a view has fewer than two columns.
    """

    def __init__(
        self,
        scale: float = 1.0,
        tau_min: float = 0.01,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(normalize=normalize, scope=scope, loss_weight=loss_weight)
        if not 0 < scale < float('inf'):
            raise ValueError(f'scale must be > 0 and finite, got {scale!r}')
        if not 0 < tau_min < 0.5 / scale:
            raise ValueError(
                f'tau_min must be in (0, 0.5/scale), got {tau_min!r} with scale={scale!r}'
            )
        self.scale, self.tau_min = float(scale), float(tau_min)

    def embedded(self, view: Tensor) -> Tensor:
        """(n, D + 1) rows, of which e is left as it is."""
        if view.size(1) < 2:
            raise UserError(
                f'TaUSimCLRLoss got views of {view.size(1)} columns, but needs an embedding and '
                'one more. Fix: out_channels of the neck'
            )
        rows = super().embedded(view[:, :-1])
        return torch.cat([rows, view[:, -1:].to(rows.dtype)], 1)

    def temperatures(self, rows: Tensor) -> Tensor:
        """(n,) temperatures, at least float32, of (n, D + 1) rows."""
        e = rows[:, -1]
        e = e.to(torch.promote_types(e.dtype, torch.float32))
        return (e.sigmoid() / self.scale).clamp(min=self.tau_min)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over the two anchors of each sample."""
        tau = self.temperatures(torch.cat([batch.view1, batch.view2]))
        for name in ('view1', 'view2', 'all_view1', 'all_view2'):
            setattr(batch, name, getattr(batch, name)[:, :-1])
        terms = negative_terms(
            torch.cat([batch.view1, batch.view2]),
            torch.cat([batch.view2, batch.view1]),
            torch.cat([batch.all_view1, batch.all_view2]),
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
        return info_nce_losses(terms).view(2, batch.ids.numel()).mean(0)
