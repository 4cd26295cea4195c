"""List-wise AP (DIR) as a registered loss."""

from mmrank.functional.ranking.listwise_ap import listwise_ap_loss

from .ranking_loss import PaddedLoss


class ListwiseAPLoss(PaddedLoss):
    """Average precision of a soft histogram of the scores.

    Known as DIR. The query itself is excluded from its own list. With ``num_bins=k + 1`` on cosines
    this is FastAP with k bins. Source: Revaud
    et al., Learning with Average Precision: Training Image Retrieval with a Listwise Loss, ICCV
    2019.

    Args:
        num_bins: Number of bins, >= 2; the paper's 20.
        score_range: Range of the (activated) scores, the centres of the last and of the first bin.
            (-1, 1) is for cosines; a score outside has no gradient.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``), ``reduction``,
            ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    function = staticmethod(listwise_ap_loss)

    def __init__(
        self, num_bins: int = 20, score_range: tuple[float, float] = (-1.0, 1.0), **kwargs
    ) -> None:
        settings = dict(num_bins=num_bins, score_range=tuple(score_range))
        super().__init__(settings, **kwargs)
