"""What losses on the statistics of whole batches share."""

from torch import Tensor

from .contrasted_batch import ContrastedBatch
from .contrastive_loss import ContrastiveLoss


class DecorrelationLoss(ContrastiveLoss):
    """Base of losses that compare columns of a batch, not its samples.

    They have no negatives and look at no index: a sample that is there twice
    counts twice. With ``scope='global'`` the statistics are those of the
    batches of all ranks. Subclasses implement :meth:`batch_loss`.

    Args:
        scope: ``global``: statistics of all ranks. ``local``: of this one.
        loss_weight: Factor of the whole loss.
    """

    def __init__(
        self, scope: str = 'global', loss_weight: float = 1.0
    ) -> None:
        super().__init__(False, scope, loss_weight)

    def row_losses(
        self, batch: ContrastedBatch, sample_idx: Tensor | None, group
    ) -> Tensor:
        """The loss of the batch, once for each sample of this rank.

        So that the mean over all ranks, which the base takes, is the loss.
        """
        views = batch.all_view1, batch.all_view2
        if batch.all_view1.size(0) < 2:
            loss = sum(x.sum() for x in views) * 0
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
