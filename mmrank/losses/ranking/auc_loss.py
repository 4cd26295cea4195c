"""AUC and multi-class AUC as registered losses."""

import torch
from torch import Tensor

from mmrank.functional.ranking.auc import auc_loss
from mmrank.functional.ranking.mauc import mauc_terms

from .ranking_loss import PaddedLoss, RankedLists, RankingLoss


class MAUCLoss(RankingLoss):
    """Area under the ROC curve of every class against every other one.

    For class i the mean over the other classes j of
    ``mean_{x in i, y in j} l(f_i(x) - f_i(y))``; samples of no class are one more class of
    negatives, so with one column it is the binary AUC. Source: Yang et al., Learning with
    Multiclass AUC: Theory and Algorithms, TPAMI 2021.

    Args:
        surrogate: ``square``: ``l(x) = (1 - x/tau)^2``, linear in the number of samples;
            ``one_sided_huber``.
        tau: Margin in units of the (activated) scores, > 0.
        **kwargs: ``num_classes``, ``activation``, ``scope``,
            ``loss_weight``, ``use_sigmoid`` and ``reduction`` (over the classes that have a pair)
            of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    ignores_empty_lists = True

    def __init__(self, surrogate: str = 'square', tau: float = 1.0, **kwargs) -> None:
        super().__init__(mode='per_class', **kwargs)
        self.settings = dict(surrogate=surrogate, tau=tau)
        # Refuse a bad setting before training starts.
        nothing = torch.zeros(1, 0)
        mauc_terms(nothing, nothing.bool(), **self.settings)

    def list_losses(self, lists: RankedLists) -> Tensor:
        """MAUC of the columns of a classifier.

        Raises:
            ValueError: If the lists are the queries of a retrieval batch.
        """
        if lists.list_classes is not None:
            raise ValueError(
                'MAUCLoss compares the classes of a classifier; for retrieval use mmrank.AUCLoss'
            )
        terms = mauc_terms(
            lists.scores,
            lists.is_positive,
            mask=lists.is_positive | lists.neg_mask,
            group=lists.group,
            **self.settings,
        )
        self.diagnostics = {'num_positive': lists.is_positive.sum()}
        loss = self.reduce_lists(terms.loss, terms.has_pairs)
        return loss.to(torch.promote_types(lists.scores.dtype, torch.float32))


class AUCLoss(PaddedLoss):
    """Area under the ROC curve by a pair surrogate.

    ``mean_ij l(s_i - t_j)`` over positives i and negatives j of a list. Every pair has the same
    weight, whatever its rank: a baseline of AP losses.

    Args:
        surrogate: ``sigmoid``: ``l(x) = sigmoid(-x / tau)``, a smooth
            1 - AUC; ``one_sided_huber``: :func:`one_sided_huber`, exact in near-linear time.
        tau: Temperature or margin in units of the (activated) scores, > 0.
            0.1 is for cosines; take 1 for logits.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``), ``reduction``,
            ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`. A list without
            negatives counts as 0 in the mean of ``reduction='mean'``.

    Raises:
        ValueError: On a parameter out of range.
    """

    function = staticmethod(auc_loss)

    def __init__(self, surrogate: str = 'sigmoid', tau: float = 0.1, **kwargs) -> None:
        super().__init__(dict(surrogate=surrogate, tau=tau), **kwargs)
