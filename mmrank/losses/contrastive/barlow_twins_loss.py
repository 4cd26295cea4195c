"""Barlow Twins as a registered loss."""

from torch import Tensor

from mmrank.functional.contrastive.cross_correlation import (
    cross_correlation_terms,
)
from mmrank.registry import MODELS

from .decorrelation_loss import DecorrelationLoss


@MODELS.register_module()
class BarlowTwinsLoss(DecorrelationLoss):
    """Cross-correlation of two views, drawn to the identity.

    In one process it is mmpretrain's ``LatentCrossCorrelationHead`` with
    ``CrossCorrelationLoss``. That one standardises each rank by itself and
    sends no gradient through its sum over ranks; here the batch is that of
    all ranks. Source: Zbontar et al., Barlow Twins, ICML 2021.

    Args:
        off_diagonal: Weight of the correlation of different columns.
        scope: ``global``: statistics of all ranks. ``local``: of this one.
        loss_weight: Factor of the whole loss.

    Raises:
        ValueError: If the weight is negative.
    """

    def __init__(
        self,
        off_diagonal: float = 0.0051,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(scope, loss_weight)
        if not off_diagonal >= 0:
            raise ValueError(
                f'off_diagonal must be >= 0, got {off_diagonal!r}'
            )
        self.off_diagonal = float(off_diagonal)

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Both parts of the distance from the identity, weighted."""
        own, others = cross_correlation_terms(view1, view2)
        self.diagnostics |= {
            'on_diagonal': own.detach(),
            'off_diagonal': others.detach(),
        }
        return own + self.off_diagonal * others
