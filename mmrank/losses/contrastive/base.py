"""Base of the registered contrastive losses, and the batch they compare."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mmrank.distributed import (
    all_gather_rows,
    join,
    joined_group,
    mean_gradient,
    mean_over_ranks,
    sizes_and_dtype,
    training_group,
)
from mmrank.errors import UserError
from mmrank.functional.metrics.unit_rows import unit_rows
from mmrank.losses.options import ScopedLoss
from mmrank.state.sample_state import check_sample_ids
from mmrank.tensors import (
    at_least_float32,
    check_floats,
    check_tensors,
    checked_weight,
    is_first_batch,
    warn_of_one_sample,
    zero_absent,
)

from .terms import NegativeTerms, negative_terms


@dataclass
class ContrastedBatch:
    """Two (n, D) views of the samples of this rank, their (n,) int64 ids, and the negatives.

    Those are ``all_view1``, ``all_view2`` and ``all_ids`` of M rows of all ranks, with a gradient
    that is summed over ranks, or the batch itself. ``counts`` are the rows of each rank of
    ``group``, over which state is kept equal, or of this rank alone. ``sample_idx`` is as given.
    ``weight`` (n,) and ``all_weight`` (M,) are floats that say how many samples a row is, or None.
    """

    view1: Tensor
    view2: Tensor
    ids: Tensor
    all_view1: Tensor
    all_view2: Tensor
    all_ids: Tensor
    counts: list[int]
    group: object = None
    sample_idx: Tensor | None = None
    weight: Tensor | None = None
    all_weight: Tensor | None = None

    @classmethod
    def of_views(cls, view1, view2, sample_idx=None, group=None, together=True, weight=None):
        """Join the views of all ranks, whose numbers may differ; without ids all rows differ.

        If not ``together``, the negatives are this rank's, and the group has its ``counts``.
        """
        n = len(view1)
        counts = [n]
        spread = group is not None and together
        if group is not None:
            dtype = torch.promote_types(view1.dtype, view2.dtype)
            own = [n, int(weight is not None)]
            rows = view1 if spread else None
            sizes, dtype = sizes_and_dtype(own, dtype, group, view1.device, rows)
            counts, weighted = zip(*sizes)
            if any(weighted) and weight is None:
                weight = torch.ones(n, device=view1.device)
            if spread:
                view1 = view1.to(dtype)
                view2 = view2.to(dtype)
        begin = sum(counts[: dist.get_rank(group)]) if spread else 0
        if sample_idx is None:
            ids = torch.arange(begin, begin + n, device=view1.device)
        else:
            ids = sample_idx.to(view1.device, non_blocking=True).long()
        if weight is not None:
            weight = weight.to(torch.promote_types(view1.dtype, torch.float32))
        rest = counts, group, sample_idx, weight
        if not spread:
            return cls(view1, view2, ids, view1, view2, ids, *rest, weight)
        joined = all_gather_rows(join([view1, view2], 1), counts, group)
        all_ids = all_gather_rows(ids[:, None], counts, group)[:, 0]
        if weight is not None:
            weight = all_gather_rows(weight[:, None], counts, group)[:, 0]
        all_view1, all_view2 = joined.chunk(2, 1)
        return cls(view1, view2, ids, all_view1, all_view2, all_ids, *rest, weight)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> 'ContrastedBatch':
        """The batch with a function of all rows."""
        view1 = function(self.view1)
        view2 = function(self.view2)
        if self.all_view1 is self.view1:
            return replace(self, view1=view1, view2=view2, all_view1=view1, all_view2=view2)
        all_view1 = function(self.all_view1)
        all_view2 = function(self.all_view2)
        return replace(self, view1=view1, view2=view2, all_view1=all_view1, all_view2=all_view2)

    def mean(self, values: Tensor) -> Tensor:
        """() weighted mean of (n,) finite values of this rank; 0 without any."""
        if self.weight is None:
            return values.sum() / max(len(values), 1)
        return (values * self.weight).sum() / self.weight.sum().clamp(min=1e-30)

    def terms(self, tau: Tensor | float, bimodal: bool) -> NegativeTerms:
        """(2, n) terms of both views, compared with all samples but their own.

        If ``bimodal`` the views are modalities, each compared with the other one (iSogCLR, ICML
        2023, eq. 15 and 16); if not, each view is compared with both (eq. 11). ``tau`` is one, (n,)
        or (2, n).
        """
        ids = self.ids
        dtype = torch.promote_types(self.view1.dtype, torch.float32)
        tau = torch.as_tensor(tau, dtype=dtype, device=ids.device).expand(2, len(ids))
        is_whole = self.all_view1 is self.view1
        if bimodal and is_whole:
            return negative_terms(self.view1, self.view2, self.view2, tau, ids, ids, self.weight)
        all_weight = self.all_weight
        if bimodal:
            views = self.view1, self.view2
            keys = ids, self.all_ids, all_weight
            first = negative_terms(*views, self.all_view2, tau[0], *keys)
            second = negative_terms(*views[::-1], self.all_view1, tau[1], *keys)
            pairs = zip(vars(first).values(), vars(second).values())
            return NegativeTerms(*(torch.stack(pair) for pair in pairs))
        anchors = torch.cat([self.view1, self.view2])
        positives = torch.cat([self.view2, self.view1])
        ids = ids.repeat(2)
        keys = anchors if is_whole else torch.cat([self.all_view1, self.all_view2])
        key_ids = ids if is_whole else self.all_ids.repeat(2)
        weight = None if all_weight is None else all_weight.repeat(2)
        terms = negative_terms(anchors, positives, keys, tau.reshape(-1), ids, key_ids, weight)
        return NegativeTerms(*(x.view_as(tau) for x in vars(terms).values()))


class ContrastiveLoss(ScopedLoss):
    """Base of losses that distinguish the samples of a batch.

    Subclasses implement :meth:`row_losses` and pass ``**kwargs`` on, which are ``scope`` and
    ``loss_weight`` of :class:`ScopedLoss`.

    Attributes:
        diagnostics: Detached scalars of this rank's last batch, by name.
    """

    keeps_samples = False  # whether it keeps state per sample, the same on all ranks
    saturation_advice = ''

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.diagnostics: dict[str, Tensor] = {}
        self._lone_batches = 0

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        # Earlier versions saved parameters of shape (), which fully_shard refuses.
        for name, parameter in self.named_parameters(recurse=False):
            saved = state_dict.get(prefix + name)
            if saved is not None and saved.shape == () and parameter.shape == (1,):
                state_dict[prefix + name] = saved.view(1)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(
        self,
        view1: Tensor,
        view2: Tensor,
        sample_idx: Tensor | None = None,
        *,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            view1: (B, D) embeddings, any float dtype; B may differ by rank and batch.
            view2: (B, D) embeddings of the same samples: another augmentation, or another modality.
            sample_idx: (B,) integer index of each sample in the training set; rows of one sample
                are not negatives of each other. None, where the loss keeps nothing per sample: all
                rows differ.
            weight: (B,) finite weights >= 0. A sample of weight w counts as w copies of one sample:
                they are not negatives of each other, and a moving average takes one step. One of 0
                is absent, whatever it holds. None: all 1, also where other ranks have weights.

        Returns:
            Scalar, at least float32; 0, still attached to the graph, when no sample has a negative.
            With ``scope='global'`` all ranks return the loss of the joined batch, with a gradient
            for DistributedDataParallel, which averages.
        """
        check_tensors(view1=view1, view2=view2)
        if weight is not None:
            weight = checked_weight('weight', weight, (len(view1),)).detach()
            weight = weight.to(view1.device, non_blocking=True)
            view1, view2, sample_idx = zero_absent(weight, view1, view2, sample_idx)
        self._check(view1, view2, sample_idx)
        view1 = self.normalized(view1)
        view2 = self.normalized(view2)
        world = training_group(self)
        together = world is not None and self.scope == 'global'
        group = world if together or self.keeps_samples else None
        batch = ContrastedBatch.of_views(view1, view2, sample_idx, group, together, weight)
        total = len(batch.all_ids)
        self._check_batch_size(total)
        losses = self.row_losses(batch)
        self._note(batch)
        if batch.weight is not None:
            losses = losses * batch.weight
            total = batch.all_weight.sum()
        return self.loss_weight * mean_over_ranks(losses, total, group if together else None)

    def normalized(self, view: Tensor) -> Tensor:
        """(n, D) rows that are compared, of the (n, D) rows of the model: of length 1."""
        return unit_rows(view)

    def learnt(self, name: str) -> Tensor:
        """A parameter, at least float32, whose gradient is the mean over the ranks."""
        return at_least_float32(mean_gradient(getattr(self, name), joined_group(self)))

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        """(n,) losses of the samples of this rank."""
        raise NotImplementedError

    def terms(self, batch: ContrastedBatch, tau: Tensor | float, bimodal: bool) -> NegativeTerms:
        """See :meth:`ContrastedBatch.terms`; notes the mean number of negatives of an anchor."""
        terms = batch.terms(tau, bimodal)
        if terms.count.numel():
            self.diagnostics['negatives'] = terms.count.double().mean()
        return terms

    def _check(self, view1, view2, sample_idx) -> None:
        if view1.dim() != 2 or view1.shape != view2.shape:
            raise UserError(
                'view1 and view2 must be embeddings (samples, length) of the same samples, got '
                f'shapes {tuple(view1.shape)} and {tuple(view2.shape)}. Fix: loss(view1, view2); '
                'with classes mmrank.EmbeddingLoss(mmrank.SmoothAPLoss())(embeddings, classes)'
            )
        check_floats(view1=view1, view2=view2)
        if sample_idx is not None:
            check_sample_ids(sample_idx, len(view1))
            if is_first_batch(self, sample_idx):
                warn_of_one_sample(self, sample_idx)
        elif self.keeps_samples:
            raise UserError(
                f'{type(self).__name__} requires sample_idx. Fix: loss(view1, view2, '
                'sample_idx=the place of each sample in the training set); in mmpretrain keep '
                "'sample_idx' in meta_keys of PackInputs"
            )

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
        if batch.ids.numel():
            view1 = at_least_float32(batch.view1)
            view2 = at_least_float32(batch.view2)
            self.diagnostics['pos_score'] = batch.mean((view1 * view2).sum(1))


def scalar_parameter(value: float) -> nn.Parameter:
    """(1,) float32 parameter, whatever the default dtype; fully_shard refuses one of shape ()."""
    return nn.Parameter(torch.full((1,), value, dtype=torch.float32))
