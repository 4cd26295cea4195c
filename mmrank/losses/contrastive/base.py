"""Base of the registered contrastive losses, and the batch they compare."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.checks import one_of
from mmrank.distributed import all_gather_rows, join, mean_over_ranks, rows_and_dtype, world_group
from mmrank.errors import UserError
from mmrank.losses.options import NamedSettings
from mmrank.losses.unit_rows import unit_rows
from mmrank.state.sample_state import check_sample_ids

from .terms import NegativeTerms, check_views, two_modality_terms, two_view_terms


@dataclass
class ContrastedBatch:
    """Two (n, D) views of the samples of this rank, their (n,) int64 ids, and the negatives.

    Those are ``all_view1``, ``all_view2`` and ``all_ids`` of M rows of all ranks, with a gradient
    that is summed over ranks, or of this rank alone. ``counts`` are the rows of each rank, or of
    this one alone; ``negatives`` is the mean number of negatives of an anchor, once :meth:`terms`
    was called.
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
    def of_views(cls, view1, view2, sample_idx, group, together: bool):
        """Join the views of all ranks, whose numbers may differ; without ids all rows differ.

        If not ``together``, the negatives are this rank's, and the group has its ``counts``.
        """
        n = view1.size(0)
        counts = [view1.size(0)]
        spread = group is not None and together
        if group is not None:
            counts, dtype = rows_and_dtype(join([view1, view2], 1), group)
            if spread:
                view1 = view1.to(dtype)
                view2 = view2.to(dtype)
        begin = sum(counts[: dist.get_rank(group)]) if spread else 0
        if sample_idx is None:
            ids = torch.arange(begin, begin + n, device=view1.device)
        else:
            ids = sample_idx.to(view1.device, non_blocking=True).long()
        if not spread:
            return cls(view1, view2, ids, view1, view2, ids, counts)
        joined = all_gather_rows(join([view1, view2], 1), counts, group)
        all_view1, all_view2 = joined.chunk(2, 1)
        all_ids = all_gather_rows(ids[:, None], counts, group)[:, 0]
        return cls(view1, view2, ids, all_view1, all_view2, all_ids, counts)

    def terms(self, taus: Sequence[Tensor | float]) -> list[NegativeTerms]:
        """Compare the views of this rank with their negatives.

        With one temperature, or one per sample, every view is compared with both views of all
        others: the terms of 2n anchors. With two the views are modalities, each against the other
        one.
        """
        keys = self.all_view1, self.all_view2, self.all_ids
        rest = self.ids, None if self.all_view1 is self.view1 else keys
        if len(taus) == 1:
            terms = [two_view_terms(self.view1, self.view2, taus[0], *rest)]
        else:
            terms = two_modality_terms(self.view1, self.view2, taus[0], taus[1], *rest)
        self.negatives = torch.cat([x.count for x in terms]).double().mean()
        return [*terms]


class ContrastiveLoss(NamedSettings):
    """Base of losses that distinguish the samples of a batch.

    Subclasses implement :meth:`row_losses` and pass these arguments on.

    Args:
        normalize: Scale embeddings to length 1: similarities are cosines.
        scope: ``global``: in distributed training the negatives come from the batches of all ranks,
            exactly as in a single process. ``local``: each rank has its own negatives.
        loss_weight: Factor of the whole loss.

    Attributes:
        diagnostics: Detached scalars of this rank's last batch, by name.
    """

    keeps_samples = False  # whether it keeps state per sample, the same on all ranks
    saturation_advice = ''

    def __init__(
        self, normalize: bool = True, scope: str = 'global', loss_weight: float = 1.0
    ) -> None:
        super().__init__()
        one_of('scope', scope, ('global', 'local'))
        self.normalize = normalize
        self.scope = scope
        self.loss_weight = loss_weight
        self.diagnostics: dict[str, Tensor] = {}
        self._lone_batches = 0

    def forward(self, view1: Tensor, view2: Tensor, sample_idx: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch.

        Args:
            view1: (B, D) embeddings, any float dtype; B may differ by rank and batch.
            view2: (B, D) embeddings of the same samples: another augmentation, or another modality.
            sample_idx: (B,) integer index of each sample in the training set; rows of one sample
                are not negatives of each other. None, where the loss keeps nothing per sample: all
                rows differ.

        Returns:
            Scalar, at least float32; 0, still attached to the graph, when no sample has a negative.
            With ``scope='global'`` all ranks return the loss of the joined batch, with a gradient
            for DistributedDataParallel, which averages.
        """
        self._check(view1, view2, sample_idx)
        view1 = self.normalized(view1)
        view2 = self.normalized(view2)
        world = world_group()
        together = world is not None and self.scope == 'global'
        group = world if together or self.keeps_samples else None
        batch = ContrastedBatch.of_views(view1, view2, sample_idx, group, together)
        total = sum(batch.counts) if together else len(batch.ids)
        self._check_batch_size(total)
        losses = self.row_losses(batch, sample_idx, group)
        self._note(batch)
        return self.loss_weight * mean_over_ranks(losses, total, group if together else None)

    def normalized(self, view: Tensor) -> Tensor:
        """(n, D) rows that are compared, of the (n, D) rows of the model."""
        return unit_rows(view) if self.normalize else view

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """(n,) losses of the samples of this rank; over ``group``, or None, state is kept equal."""
        raise NotImplementedError

    def _check(self, view1, view2, sample_idx) -> None:
        check_views(view1, view2)
        for name, view in (('view1', view1), ('view2', view2)):
            if not view.is_floating_point():
                raise TypeError(f'{name} must be floats, got {view.dtype}')
        if sample_idx is None and self.keeps_samples:
            raise ValueError(
                f'{type(self).__name__} requires sample_idx, the index of each sample in the '
                "training set; keep 'sample_idx' in meta_keys of PackInputs"
            )
        if sample_idx is not None:
            check_sample_ids(sample_idx, view1.size(0))

    def _check_batch_size(self, rows: int) -> None:
        """Refuse batches of one sample, but for the last one of an epoch."""
        if not self.training:
            return
        self._lone_batches = self._lone_batches + 1 if rows == 1 else 0
        if self._lone_batches > 1:
            raise UserError(
                f'{type(self).__name__} got batches of one sample, which has no negatives, so '
                'nothing is learnt. Fix: train_dataloader.batch_size of at least 2 (the papers '
                "take 256), or with several processes scope='global'"
            )

    @torch.no_grad()
    def _note(self, batch: ContrastedBatch) -> None:
        if batch.view1.size(0):
            dtype = torch.promote_types(batch.view1.dtype, torch.float32)
            scores = (batch.view1.to(dtype) * batch.view2.to(dtype)).sum(1)
            self.diagnostics['pos_score'] = scores.mean()
            if batch.negatives is not None:
                self.diagnostics['negatives'] = batch.negatives
