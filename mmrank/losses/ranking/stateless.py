"""The base of the ranking losses that keep no state."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .base import RankedLists, RankingLoss, idle_share, lists_with_positives


class StatelessRankingLoss(RankingLoss):
    """Base of losses that keep no state: subclasses implement :meth:`losses`."""

    zero_without_positives = True

    def losses(self, lists: RankedLists) -> Tensor:
        """(L,) losses of the lists, 0 for a list without positives."""
        raise NotImplementedError

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor:
        losses = torch.cat([self.losses(lists) for lists in parts])
        has_positive = lists_with_positives(parts)
        self.diagnostics = {
            'idle': idle_share(losses, has_positive),
            **self.extra_diagnostics(losses.detach(), has_positive),
        }
        counted = torch.cat([self.counted(lists) for lists in parts])
        return self.reduce_lists(losses, counted)

    def extra_diagnostics(self, losses: Tensor, has_positive: Tensor) -> dict[str, Tensor]:
        """Further scalars to log, of (L,) detached losses."""
        return {}

    def counted(self, lists: RankedLists) -> Tensor:
        """(L,) bool, the lists that ``reduction='mean'`` divides by."""
        return lists.has_positive
