"""AUC as a registered loss."""

from mmrank.functional.ranking.auc import auc_padded
from mmrank.registry import MODELS

from .padded_loss import PaddedLoss


@MODELS.register_module()
class AUCLoss(PaddedLoss):
    """Area under the ROC curve by a pair surrogate.

    ``mean_ij l(s_i - t_j)`` over positives i and negatives j of a list. Every
    pair counts alike, whatever the rank: what AP losses are compared with.

    Args:
        surrogate: ``sigmoid``: ``l(x) = sigmoid(-x / tau)``, a smooth
            1 - AUC; ``one_sided_huber``: :func:`one_sided_huber`, exact in
            near-linear time.
        tau: Temperature or margin in units of the (activated) scores, > 0.
            0.1 is for cosines; take 1 for logits.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``),
            ``reduction``, ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`. A list without
            negatives counts as 0 in the mean of ``reduction='mean'``.

    Raises:
        ValueError: On a parameter out of range.
    """

    padded = staticmethod(auc_padded)

    def __init__(
        self, surrogate: str = 'sigmoid', tau: float = 0.1, **kwargs
    ) -> None:
        super().__init__(dict(surrogate=surrogate, tau=tau), **kwargs)
