"""What a contrastive loss is computed from."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.functional.all_gather_rows import all_gather_rows, rows_by_rank
from mmrank.functional.contrastive.contrasted_views import (
    two_modality_terms,
    two_view_terms,
)
from mmrank.functional.contrastive.negative_terms import NegativeTerms


@dataclass
class ContrastedBatch:
    """Two views of the samples of this rank, and where negatives come from.

    Attributes:
        view1: (n, D) embeddings of this rank.
        view2: (n, D) embeddings of this rank.
        ids: (n,) int64 samples, on the device of the views.
        all_view1: (M, D) of all ranks, with a gradient that is summed over
            ranks; or those of this rank.
        all_view2: (M, D), likewise.
        all_ids: (M,) int64, likewise.
        counts: Rows of each rank; those of this rank alone if nobody asked.
        negatives: Mean number of negatives of an anchor, once :meth:`terms`
            was asked.
    """

    view1: Tensor
    view2: Tensor
    ids: Tensor
    all_view1: Tensor
    all_view2: Tensor
    all_ids: Tensor
    counts: list[int]
    negatives: Tensor | None = None

    @classmethod
    def of_views(
        cls,
        view1: Tensor,
        view2: Tensor,
        sample_idx: Tensor | None,
        group=None,
        together: bool = True,
    ) -> 'ContrastedBatch':
        """Join the views of all ranks, whose numbers may differ.

        Args:
            view1: (n, D).
            view2: (n, D).
            sample_idx: (n,) samples. None: all rows differ.
            group: Process group; None for a single process.
            together: Whether negatives come from all ranks. If not, the group
                is only asked for its ``counts``.
        """
        n, device = view1.size(0), view1.device
        counts = [n]
        if group is not None:
            counts = rows_by_rank(n, group, device)
        spread = group is not None and together
        begin = sum(counts[: dist.get_rank(group)]) if spread else 0
        if sample_idx is None:
            ids = torch.arange(begin, begin + n, device=device)
        else:
            ids = sample_idx.to(device, non_blocking=True).long()
        if not spread:
            return cls(view1, view2, ids, view1, view2, ids, counts)
        joined = all_gather_rows(torch.cat([view1, view2], 1), counts, group)
        all_ids = all_gather_rows(ids[:, None], counts, group)[:, 0]
        return cls(view1, view2, ids, *joined.chunk(2, 1), all_ids, counts)

    def terms(self, taus: list[Tensor | float]) -> list[NegativeTerms]:
        """Compare the views of this rank with their negatives.

        Args:
            taus: One temperature, or one per sample: every view against both
                views of all others. Two: the views are modalities, each
                against the other one, with temperatures of their own.

        Returns:
            For one temperature the terms of 2n anchors; for two the terms of
            n anchors of each view.
        """
        rest = (self.ids, self.all_view1, self.all_view2, self.all_ids)
        if len(taus) == 1:
            terms = [two_view_terms(self.view1, self.view2, *taus, *rest)]
        else:
            terms = [*two_modality_terms(self.view1, self.view2, *taus, *rest)]
        self.negatives = torch.cat([x.count for x in terms]).double().mean()
        return terms
