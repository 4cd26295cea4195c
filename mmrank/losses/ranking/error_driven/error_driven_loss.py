"""What the error-driven ranking losses share."""

import torch
from torch import Tensor

from mmrank.functional.ranking.error_driven.update import check_delta
from mmrank.losses.ranking.ranking_loss import RankedLists, RankingLoss
from mmrank.state import MeanPositiveScore

#: What the mean positive logit of a batch is compared with. No setting: the loss itself has no
#: range.
USUAL_LOGITS = (-5.0, 5.0)


class ErrorDrivenLoss(RankingLoss):
    """Base of AP-Loss, aLRP and Rank & Sort.

    They count with the step ``H(x) = clamp(x / (2 delta) + 1/2, 0, 1)`` of
    raw logits and set the gradient by an update rule. The mean positive
    logit is tracked for :meth:`logit_centre` alone; it does not affect the loss.

    Args:
        delta: Half width of the step in units of the logits, > 0.
        momentum: Weight of the new batch in the mean positive logit.
        **kwargs: ``num_classes``, ``mode``, ``reduction``, ``scope``, ``loss_weight`` and
            ``use_sigmoid`` of :class:`RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    ignores_empty_lists = True

    def __init__(self, delta: float, momentum: float = 0.01, **kwargs) -> None:
        super().__init__(activation='none', **kwargs)
        check_delta(delta)
        self.delta = delta
        self.mean_positive = MeanPositiveScore(1, momentum, score_range=USUAL_LOGITS)

    def list_losses(self, lists: RankedLists) -> Tensor | dict[str, Tensor]:
        """Note where the positives are, then evaluate."""
        self.mean_positive.update(lists.pos, lists.pos_mask, lists.state_group)
        self.diagnostics = {
            'mean_positive': self.mean_positive.mean.mean(),
            'num_positive': lists.pos_mask.sum(),
        }
        dtype = torch.promote_types(lists.pos.dtype, torch.float32)
        losses = self.evaluate(lists)
        if isinstance(losses, dict):
            return {name: loss.to(dtype) for name, loss in losses.items()}
        return losses.to(dtype)

    def evaluate(self, lists: RankedLists) -> Tensor | dict[str, Tensor]:
        """Float64 loss of the gathered lists; what a subclass defines."""
        raise NotImplementedError

    def note(self, **scalars: Tensor) -> None:
        """Add detached scalars to the diagnostics."""
        self.diagnostics.update({k: v.detach() for k, v in scalars.items()})

    def logit_centre(self) -> Tensor:
        """Mean positive logit, (1,)."""
        return self.mean_positive.mean

    @torch.no_grad()
    def shift_logits(self, offset: Tensor) -> None:
        """Move the mean positive logit with the logits.

        Args:
            offset: (1,) or (C,), what is added to the logits.
        """
        mean = self.mean_positive.mean
        mean.copy_(self._shifted(mean, offset))
