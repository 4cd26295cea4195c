"""BlackBox AP as a registered loss."""

import torch
from torch import Tensor

from mmrank.functional.blackbox_ap import blackbox_ap_padded, check_blackbox
from mmrank.registry import MODELS

from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss


@MODELS.register_module()
class BlackBoxAPLoss(RankingLoss):
    """Exact average precision, gradient by a perturbed ranking.

    Source: Rolinek et al., Optimizing Rank-Based Metrics with Blackbox
    Differentiation, CVPR 2020.

    Args:
        lam: Strength of the perturbation, > 0: the authors' lambda where
            every image of a batch is a query, see
            :func:`blackbox_ap_padded`.
        margin: Distance by which positives should lead, in units of the
            (activated) scores, >= 0: the authors' alpha.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``),
            ``reduction``, ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.models.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self, lam: float = 4.0, margin: float = 0.02, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        check_blackbox(lam, margin)
        self.lam, self.margin = lam, margin

    def list_losses(self, lists: RankedLists) -> Tensor:
        """BlackBox AP of the lists, reduced."""
        losses = blackbox_ap_padded(
            lists.pos,
            lists.scores,
            lam=self.lam,
            margin=self.margin,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        self.diagnostics = {'num_positive': lists.pos_mask.sum()}
        loss = self.reduce_lists(losses, lists.pos_mask.any(1))
        return loss.to(torch.promote_types(lists.pos.dtype, torch.float32))
