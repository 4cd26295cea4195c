"""Balances the box part of a loss against the whole."""

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import inside_backward
from mmrank.distributed import all_reduce_sum
from mmrank.settings import check_count

from .base import SavedState


class SelfBalance(SavedState):
    """Ratio of the whole loss to its box part over the last period.

    Early in training the box part of aLRP is small compared with the classification part;
    multiplied by this ratio its gradient keeps up. The ratio of a period is the ratio of the means
    over the period before, at first 50. Source: aLRP (NeurIPS 2020), section 4.
    """

    ratio: Tensor
    sums: Tensor
    steps: Tensor

    def __init__(self, period: int = 3665) -> None:
        super().__init__()
        check_count('period', period)
        self.period = period
        self.add_state('ratio', (), 50.0)
        self.add_state('sums', (2,), dtype=torch.float64)
        self.add_state('steps', (), dtype=torch.float64)
        self._used = self.ratio

    def update(self, classification: Tensor, boxes: Tensor, group=None) -> Tensor:
        """Take in the scalar losses of an iteration, boxes without this ratio; returns the ratio.

        A loss that is not finite, or an iteration without boxes, does not count. With a ``group``
        its ranks have other losses.
        """
        if self.training and inside_backward():
            return self._used.clone()  # by the forward that is run again
        ratio = self.ratio.clone()
        if not self.moves:
            return ratio
        self._used = ratio
        losses = torch.stack([classification, boxes]).detach().double()
        if group is not None:
            losses = all_reduce_sum(losses, group) / dist.get_world_size(group)
        usable = losses.isfinite().all() & (losses[1] > 0)
        self.sums += torch.where(usable, losses, 0)
        self.steps += usable
        full = self.steps >= self.period
        renewed = self.sums.sum() / self.sums[1].clamp(min=1e-12)
        usable = full & renewed.float().isfinite()
        self.ratio.copy_(torch.where(usable, renewed, self.ratio))
        self.sums.copy_(torch.where(full, 0, self.sums))
        self.steps.copy_(torch.where(full, 0, self.steps))
        return ratio
