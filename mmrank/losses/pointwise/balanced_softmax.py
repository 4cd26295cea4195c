"""Balanced softmax."""

from mmrank.losses.options import SoftmaxOptions, Unpack

from .logit_adjusted_ce import LogitAdjustedCELoss


class BalancedSoftmaxLoss(LogitAdjustedCELoss):
    """Cross-entropy of a softmax whose terms count as often as their classes have samples.

    It equals :class:`LogitAdjustedCELoss` with softmax and ``tau=1``. Source: Ren et al., Balanced
    Meta-Softmax for Long-Tailed Visual Recognition, NeurIPS 2020, eq. 3.

    Args:
        num_classes: Number of classes C >= 2, columns of the scores.
        **kwargs: See :class:`LogitAdjustedCELoss`, except ``tau`` and ``use_sigmoid``.
    """

    def __init__(self, num_classes: int, **kwargs: Unpack[SoftmaxOptions]) -> None:
        super().__init__(num_classes, use_sigmoid=False, **kwargs)
