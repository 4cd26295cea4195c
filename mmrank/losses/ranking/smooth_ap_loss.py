"""SmoothAP as a registered loss."""

from torch import Tensor

from mmrank.functional.ranking.smooth_ap import smooth_ap_loss

from .ranking_loss import PaddedLoss, RankedLists


class SmoothAPLoss(PaddedLoss):
    """Average precision with sigmoids for the ranks.

    The query itself is excluded from its own list; the authors' code counts it as a positive on the
    first rank. Source: Brown et al., Smooth-AP:
    Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.

    Args:
        tau: Temperature in units of the (activated) scores, > 0. The paper's 0.01 is for cosines;
            beyond a few tau a pair has no gradient.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``), ``reduction``,
            ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    function = staticmethod(smooth_ap_loss)
    saturation_advice = (
        'There are too many negatives for a positive: raise the learning rate or loss_weight, or '
        'use mmrank.StableAPLoss, which rescales itself'
    )

    def __init__(self, tau: float = 0.01, **kwargs) -> None:
        super().__init__(dict(tau=tau), **kwargs)

    def extra_diagnostics(self, losses: Tensor, lists: RankedLists) -> dict[str, Tensor]:
        """``argument``: the x whose ``x/(1 + x)`` is the mean loss."""
        risk = losses.sum() / self.counted(lists).sum().clamp(min=1)
        return {'argument': risk / (1 - risk).clamp(min=1e-12)}
