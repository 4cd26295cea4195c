"""VICReg as a registered loss."""

from torch import Tensor

from mmrank.functional.contrastive.decorrelation import vicreg_terms
from mmrank.registry import MODELS

from .decorrelation_loss import DecorrelationLoss


@MODELS.register_module()
class VICRegLoss(DecorrelationLoss):
    """Variance, invariance and covariance of two views, weighted.

    Source: Bardes et al., VICReg, ICLR 2022, eq. 6; see
    :func:`mmrank.functional.vicreg_terms`. Embeddings are not normalised.

    Args:
        invariance: Weight of the difference of the views.
        variance: Weight of columns with a standard deviation below 1.
        covariance: Weight of the covariance of different columns.
        scope: ``global``: statistics of all ranks. ``local``: of this one.
        loss_weight: Factor of the whole loss.

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
        self.weights = dict(
            invariance=invariance, variance=variance, covariance=covariance
        )
        for name, value in self.weights.items():
            if not value >= 0:
                raise ValueError(f'{name} must be >= 0, got {value!r}')

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """The weighted sum of the terms."""
        terms = vars(vicreg_terms(view1, view2))
        self.diagnostics |= {k: v.detach() for k, v in terms.items()}
        return sum(self.weights[k] * v for k, v in terms.items())
