"""What the losses share that are one function of padded lists."""

from collections.abc import Callable

import torch
from torch import Tensor

from mmrank.losses.ranked_lists import RankedLists

from .ranking_loss import RankingLoss


class PaddedLoss(RankingLoss):
    """Base of losses without state: a function of the lists, and settings.

    Subclasses name the function and hand its settings on.

    Args:
        settings: Keyword arguments of the function.
        **kwargs: Those of :class:`RankingLoss`.

    Attributes:
        padded: Loss of (L, P) positives and (L, N) scores with ``pos_mask``,
            ``neg_mask`` and ``group``, as :func:`smooth_ap_padded`; a
            ``staticmethod`` of the subclass. Gives (L,) losses.

    Raises:
        ValueError: On a parameter out of range.
    """

    padded: Callable[..., Tensor]

    def __init__(self, settings: dict, **kwargs) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        # Refuse a bad setting before training starts.
        nothing = torch.zeros(1, 0)
        self.padded(nothing, nothing, **settings)

    def list_losses(self, lists: RankedLists) -> Tensor:
        """The function's value for the lists, reduced."""
        losses = self.padded(
            lists.pos,
            lists.scores,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
            **self.settings,
        )
        self.diagnostics = {
            'num_positive': lists.pos_mask.sum(),
            **self.extra_diagnostics(losses.detach(), lists),
        }
        loss = self.reduce_lists(losses, self.counted(lists))
        return loss.to(torch.promote_types(lists.pos.dtype, torch.float32))

    def extra_diagnostics(
        self, losses: Tensor, lists: RankedLists
    ) -> dict[str, Tensor]:
        """Detached scalars to log beside the number of positives.

        Args:
            losses: (L,) losses, detached.
            lists: The rankings of the batch.
        """
        return {}

    def counted(self, lists: RankedLists) -> Tensor:
        """(L,) bool, the lists that ``reduction='mean'`` divides by."""
        return lists.pos_mask.any(1)
