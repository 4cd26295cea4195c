"""Running spread of the negative scores: the unit of a margin that follows the scores."""

import math

import torch
import torch.distributed as dist
from torch import Tensor

from .running_mean import RunningMean


class ScoreSpread(RunningMean):
    """Geometric EMA of the standard deviation of the negatives within a list.

    ``log sigma <- (1-lam) log sigma + lam log s``, s the mean over the lists of a batch. A batch
    counts as one within a factor of :attr:`LARGEST_STEP` of the average, and the first within
    :attr:`RANGE`, so that a broken score widens no margin for long. Infinite scores do not count.
    """

    LARGEST_STEP = 10.0
    RANGE = (0.01, 100.0)

    @torch.no_grad()
    def spread(
        self, scores: Tensor, is_negative: Tensor, counted: Tensor, group=None, state_group=None
    ) -> Tensor:
        """Take in (L, N) scores of a batch; returns (1,) or (L,) float64 spreads > 0.

        ``counted`` are the (L,) bool lists that have a say. The ranks of ``group`` hold parts of
        the same lists, those of ``state_group`` other lists. Where no batch was seen yet, it is
        that of the batch itself.
        """
        taken = is_negative & scores.isfinite()
        x = torch.where(taken, scores.detach(), 0).double()
        sums = torch.stack([taken.sum(1).double(), x.sum(1)])
        if group is not None:
            dist.all_reduce(sums, group=group)
        count = sums[0].clamp(min=1)
        # Around the mean: squares of scores far from 0 would cancel.
        x = torch.where(taken, x - (sums[1] / count)[:, None], 0)
        squares = x.square().sum(1)
        if group is not None:
            dist.all_reduce(squares, group=group)
        own = (squares / count).sqrt().clamp(*self.RANGE).log()
        mean = self.update(own[:, None], counted[:, None], state_group).double()
        if mean.numel() == 1:
            own = torch.where(counted, own, 0).sum() / counted.sum().clamp(min=1)
        return torch.where(self.num_updates > 0, mean, own).exp()

    def _target(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        step = (batch_mean - mean).clamp(-math.log(self.LARGEST_STEP), math.log(self.LARGEST_STEP))
        return mean + self.momentum * step
