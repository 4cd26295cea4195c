"""BlackBox AP as a registered loss."""

from mmrank.functional.ranking.blackbox_ap import blackbox_ap_loss

from .ranking_loss import PaddedLoss


class BlackBoxAPLoss(PaddedLoss):
    """Exact average precision, gradient by a perturbed ranking.

    Source: Rolinek et al., Optimizing Rank-Based Metrics with Blackbox Differentiation, CVPR 2020.

    Args:
        lam: Strength of the perturbation, > 0: the authors' lambda where
            every image of a batch is a query, see
            :func:`blackbox_ap_loss`.
        margin: Distance by which positives should lead, in units of the (activated) scores, >= 0:
            the authors' alpha.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``), ``reduction``,
            ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    function = staticmethod(blackbox_ap_loss)

    def __init__(self, lam: float = 4.0, margin: float = 0.02, **kwargs) -> None:
        super().__init__(dict(lam=lam, margin=margin), **kwargs)
