"""From the ranks of the positives to the figures of a query."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

#: Entries of a summary that depend on the ranks of all positives.
OF_ALL_POSITIVES = ('mAP', 'R_precision', 'MAP_at_R')


class RetrievalFigures(NamedTuple):
    """Figures per query, in the order of the queries.

    Attributes:
        average_precision: (Q,) float64 in [0, 1], NaN without a positive.
        r_precision: (Q,) float64 in [0, 1], NaN without a positive.
        map_at_r: (Q,) float64 in [0, 1], NaN without a positive.
        first_rank: (Q,) int64 position of the best positive, from 1;
            0 without a positive.
        num_positives: (Q,) int64 positives in the query's gallery.
    """

    average_precision: Tensor
    r_precision: Tensor
    map_at_r: Tensor
    first_rank: Tensor
    num_positives: Tensor

    def without_unranked(self) -> 'RetrievalFigures':
        """The figures, NaN where a query has no positive."""
        missing = self.num_positives == 0
        nothing = float('nan')
        return self._replace(
            average_precision=self.average_precision.masked_fill(missing, nothing),
            r_precision=self.r_precision.masked_fill(missing, nothing),
            map_at_r=self.map_at_r.masked_fill(missing, nothing),
        )

    def summary(self, recall_at: Sequence[int] = (1, 10, 100, 1000)) -> dict[str, float]:
        """Means over the queries that have a positive.

        Args:
            recall_at: The K of Recall@K, each at least 1.

        Returns:
            ``mAP``, ``R_precision``, ``MAP_at_R`` and ``recall@K`` in [0, 1] (NaN when no query has
            a positive), and the counts ``queries``
            and ``queries_without_positive``.
        """
        check_recall_at(recall_at)
        usable = self.num_positives > 0
        means = {
            'mAP': self.average_precision,
            'R_precision': self.r_precision,
            'MAP_at_R': self.map_at_r,
        }
        for k in recall_at:
            means[f'recall@{k}'] = (self.first_rank <= k).double()
        result = {name: values[usable].mean().item() for name, values in means.items()}
        result['queries'] = int(usable.sum())
        result['queries_without_positive'] = int((~usable).sum())
        return result


def empty_figures(num_positives: Tensor) -> RetrievalFigures:
    """Zeros for the queries with ``num_positives``, (Q,) int64."""
    zeros = torch.zeros_like(num_positives, dtype=torch.float64)
    return RetrievalFigures(
        zeros, zeros.clone(), zeros.clone(), torch.zeros_like(num_positives), num_positives
    )


def check_recall_at(recall_at: Sequence[int]) -> None:
    """Refuse a K of Recall@K that is no integer of at least 1."""
    if isinstance(recall_at, str) or not isinstance(recall_at, Sequence):
        raise TypeError(
            f'recall_at must be a list of integers, got {recall_at!r}; write recall_at=(1, 10)'
        )
    for k in recall_at:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f'recall_at must hold integers of at least 1, got {k!r}')


def figures_of_ranks(positives: Tensor, sizes: Tensor, at_or_above: Tensor) -> RetrievalFigures:
    """Figures of queries whose positives are ranked.

    Args:
        positives: (B, P) scores of the positives, descending, the padding
            (of any value not above the real ones) last.
        sizes: (B,) int64 number of positives, at least 1.
        at_or_above: (B, P) int64 gallery scores >= each positive's.

    Returns:
        Figures of the B queries.
    """
    place = torch.arange(1, positives.size(1) + 1, device=positives.device)
    valid = place <= sizes[:, None]
    ascending = positives.neg()
    pos_at_or_above = torch.searchsorted(ascending, ascending, right=True)
    # Among ties the negatives come first: what a cut-off keeps is then the least that any order of
    # the ties keeps.
    position = at_or_above - pos_at_or_above + place
    kept = valid & (position <= sizes[:, None])
    size = sizes.double()
    zero = size.new_zeros(())
    precision = pos_at_or_above.double() / at_or_above
    at_place = place.double() / position
    return RetrievalFigures(
        torch.where(valid, precision, zero).sum(1) / size,
        kept.sum(1) / size,
        torch.where(kept, at_place, zero).sum(1) / size,
        position[:, 0],
        sizes,
    )


def first_ranks(positives: Tensor, sizes: Tensor, at_or_above: Tensor) -> tuple[Tensor]:
    """Places of the best positives, as in :func:`figures_of_ranks`.

    Args:
        positives: (B, P) scores of the positives, descending, -inf at the padding.
        sizes: (B,) int64 number of positives, at least 1.
        at_or_above: (B, 1) int64 gallery scores >= that of the best one.

    Returns:
        (B,) int64, from 1.
    """
    tied = (positives == positives[:, :1]).sum(1)
    return (at_or_above[:, 0] - tied + 1,)
