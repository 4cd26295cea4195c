"""Barlow Twins and VICReg as registered losses."""

import torch
from torch import Tensor

from mmrank.losses.contrastive.decorrelation import cross_correlation_terms, vicreg_terms

from .contrastive_loss import ContrastedBatch, ContrastiveLoss


class DecorrelationLoss(ContrastiveLoss):
    """Base of losses that compare columns of a batch, not its samples.

    They have no negatives and use no index: a sample that occurs twice
    counts twice. With ``scope='global'`` the statistics are those of the batches of all ranks.
    Subclasses implement :meth:`batch_loss`.

    Args:
        scope: ``global``: statistics of all ranks. ``local``: of this one.
    """

    def __init__(self, scope: str = 'global', loss_weight: float = 1.0) -> None:
        super().__init__(normalize=False, scope=scope, loss_weight=loss_weight)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """The loss of the batch, once for each sample of this rank.

        So that the mean over all ranks, which the base takes, is the loss.
        """
        views = batch.all_view1, batch.all_view2
        if batch.all_view1.size(0) < 2:
            # The sum of a row in half precision may overflow: 0 first.
            dtype = torch.promote_types(views[0].dtype, torch.float32)
            loss = sum((0 * x).sum(dtype=dtype) for x in views)
        else:
            loss = self.batch_loss(*views)
        return loss.expand(batch.ids.numel())

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Loss of a batch; what a subclass has to define.

        Args:
            view1: (M, D) embeddings, M >= 2.
            view2: (M, D) embeddings of the same samples.

        Returns:
            Scalar without ``loss_weight``.
        """
        raise NotImplementedError


class BarlowTwinsLoss(DecorrelationLoss):
    """Cross-correlation of two views, drawn to the identity.

    In one process it is mmpretrain's ``LatentCrossCorrelationHead`` with ``CrossCorrelationLoss``.
    That one standardises each rank by itself and sends no gradient through its sum over ranks; here
    the batch is that of
    all ranks. Source: Zbontar et al., Barlow Twins, ICML 2021.

    Args:
        off_diagonal: Weight of the correlation of different columns.

    Raises:
        ValueError: If the weight is negative.
    """

    def __init__(
        self, off_diagonal: float = 0.0051, scope: str = 'global', loss_weight: float = 1.0
    ) -> None:
        super().__init__(scope, loss_weight)
        if not off_diagonal >= 0:
            raise ValueError(f'off_diagonal must be >= 0, got {off_diagonal!r}')
        self.off_diagonal = float(off_diagonal)

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Both parts of the distance from the identity, weighted."""
        own, others = cross_correlation_terms(view1, view2)
        self.diagnostics |= {'on_diagonal': own.detach(), 'off_diagonal': others.detach()}
        return own + self.off_diagonal * others


class VICRegLoss(DecorrelationLoss):
    """Variance, invariance and covariance of two views, weighted.

    Source: Bardes et al., VICReg, ICLR 2022, eq. 6; see
    :func:`mmrank.functional.vicreg_terms`. Embeddings are not normalised.

    **Half precision.** The loss is computed in float32. A gradient beyond 65504 is infinite in
    float16, so that a ``GradScaler`` skips the step.

    Args:
        invariance: Weight of the difference of the views.
        variance: Weight of columns with a standard deviation below 1.
        covariance: Weight of the covariance of different columns.

    Raises:
        ValueError: If a weight is negative.
    """

    def __init__(
        self,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(scope, loss_weight)
        self.weights = dict(invariance=invariance, variance=variance, covariance=covariance)
        for name, value in self.weights.items():
            if not value >= 0:
                raise ValueError(f'{name} must be >= 0, got {value!r}')

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """The weighted sum of the terms."""
        terms = vars(vicreg_terms(view1, view2))
        self.diagnostics |= {k: v.detach() for k, v in terms.items()}
        return sum(self.weights[k] * v for k, v in terms.items())
