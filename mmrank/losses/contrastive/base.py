"""Base of the registered contrastive losses, and the batch they compare."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mmrank.distributed import (
    joined_group,
    mean_gradient,
    mean_over_ranks,
    sizes_and_dtype,
    training_group,
)
from mmrank.errors import UserError
from mmrank.losses.embeddings import checked_labels
from mmrank.settings import ScopedLoss, check_ascending
from mmrank.state.sample_state import check_sample_ids
from mmrank.tensors import (
    at_least_float32,
    check_floats,
    check_tensors,
    checked_weight,
    is_first_batch,
    unit_rows,
    warn_of_few_samples,
    zero_absent,
)

from .terms import NegativeTerms, Samples, label_mates, negative_terms


@dataclass
class ContrastedBatch:
    """Samples of this rank, and those they are compared with.

    ``gathered`` are the samples of all ranks, or ``local`` itself. ``counts`` are the rows of each
    rank of ``group``, over which state is kept equal, or of this rank alone.
    """

    local: Samples
    gathered: Samples
    counts: Sequence[int]
    group: object = None
    sample_idx: Tensor | None = None

    @classmethod
    def of_views(
        cls, views, sample_idx=None, group=None, together=True, weight=None, labels=None
    ) -> 'ContrastedBatch':
        """Join the views of all ranks, whose numbers may differ; without ids all rows differ.

        If not ``together``, the negatives are this rank's, and the group has its ``counts``. A
        label below 0 is of no other row.
        """
        first = views[0]
        n = len(first)
        device = first.device
        dtype = first.dtype
        counts = [n]
        if group is not None:
            sizes = [n, int(weight is not None), int(labels is not None)]
            rows = first if together else None
            sizes, dtype = sizes_and_dtype(sizes, dtype, group, device, rows)
            counts, weighted, labelled = zip(*sizes)
            if any(weighted) and weight is None:
                weight = torch.ones(n, device=device)
            if any(labelled) and labels is None:
                labels = torch.full((n,), -1)
        together = together and group is not None
        if together:
            views = [x.to(dtype) for x in views]
        if sample_idx is None:
            begin = sum(counts[: dist.get_rank(group)]) if together else 0
            ids = torch.arange(begin, begin + n, device=device)
        else:
            ids = sample_idx.to(device, non_blocking=True).long()
        if weight is not None:
            weight = weight.to(torch.promote_types(views[0].dtype, torch.float32))
        if labels is not None:
            labels = labels.to(device, non_blocking=True).long()
            labels = torch.where(labels < 0, -1 - ids, labels)
        local = Samples(views, ids, weight, labels)
        gathered = local.of_all_ranks(counts, group) if together else local
        return cls(local, gathered, counts, group, sample_idx)

    @property
    def is_whole(self) -> bool:
        """Whether the samples are compared with themselves alone."""
        return self.gathered is self.local

    def mapped(self, function: Callable[[Samples], Samples]) -> 'ContrastedBatch':
        """The batch with a function of its samples."""
        local = function(self.local)
        gathered = local if self.is_whole else function(self.gathered)
        return replace(self, local=local, gathered=gathered)

    def mean(self, values: Tensor) -> Tensor:
        """() weighted mean of (n,) finite values of this rank; 0 without any."""
        weight = self.local.weight
        if weight is None:
            return values.sum() / max(len(values), 1)
        return (values * weight).sum() / weight.sum().clamp(min=1e-30)

    def terms(
        self, tau: Tensor | float, bimodal: bool, true_negatives: bool = False
    ) -> NegativeTerms:
        """(V, n) terms of the views, compared with all samples but their own.

        If ``bimodal`` the two views are modalities, each compared with the other one (iSogCLR, ICML
        2023, eq. 15 and 16); if not, each view is compared with all (eq. 11). ``tau`` is one, (n,)
        or (V, n). With labels h is relative to the mean of all positives. Positives of other
        samples are compared with as negatives are, but for ``true_negatives``.
        """
        local = self.local
        views = local.views
        dtype = torch.promote_types(views[0].dtype, torch.float32)
        tau = torch.as_tensor(tau, dtype=dtype, device=local.ids.device)
        tau = tau.expand(len(views), len(local.ids))
        batch = self
        if true_negatives and local.labels is not None:
            batch = self.mapped(lambda samples: replace(samples, ids=samples.labels))
        terms = batch._terms(tau, bimodal)
        if local.labels is None and len(views) == 2:
            return terms
        rows = torch.stack(tuple(views))
        similarities = [(rows * rows.roll(-i, 0)).sum(2) for i in range(1, len(rows))]
        total = count = torch.zeros_like(tau)
        if local.labels is not None:
            every = self.gathered.views
            keys = every[::-1] if bimodal else [cast(Tensor, sum(every))]
            sums, count = label_mates(torch.cat(tuple(keys), 1), local, self.gathered)
            total = (rows * torch.stack(sums.chunk(len(keys), 1))).sum(2)
            count = count * (len(views) // len(keys))
        return terms.towards_positives(torch.stack(similarities), total, count, tau)

    def _terms(self, tau: Tensor, bimodal: bool) -> NegativeTerms:
        """(V, n) terms with the next view as positive."""
        local = self.local
        views = local.views
        if not bimodal:
            batch = self.mapped(Samples.views_as_samples)
            positives = torch.cat([*views[1:], views[0]])
            terms = negative_terms(batch.local, positives, batch.gathered, tau.reshape(-1))
            return NegativeTerms(*(x.view_as(tau) for x in terms.parts))
        images = local.of_view(0)
        texts = local.of_view(1)
        if self.is_whole:
            return negative_terms(images, views[1], texts, tau)
        first = negative_terms(images, views[1], self.gathered.of_view(1), tau[0])
        second = negative_terms(texts, views[0], self.gathered.of_view(0), tau[1])
        return NegativeTerms(*map(torch.stack, zip(first.parts, second.parts)))


class ContrastiveLoss(ScopedLoss):
    """Base of losses that distinguish the samples of a batch.

    Subclasses implement :meth:`row_losses` and pass ``**kwargs`` on, which are ``scope`` and
    ``loss_weight`` of :class:`ScopedLoss`.

    Attributes:
        diagnostics: Detached scalars of this rank's last batch, by name.
    """

    keeps_samples = False  # whether it keeps state per sample, the same on all ranks
    takes_labels = False  # whether samples of one label may be positives of each other
    two_views = True  # whether there may not be more
    tau: float  # a temperature; or of one that is learnt its logarithm, and the bounds of that
    log_tau: Tensor | None
    bounds: tuple[float, float]
    saturation_advice = ''

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.diagnostics: dict[str, Tensor] = {}
        self._lone_batches = 0

    def forward(
        self,
        view1: Tensor | Sequence[Tensor],
        view2: Tensor | None = None,
        sample_idx: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            view1: (B, D) embeddings, any float dtype; B may differ by rank and batch. Without
                ``view2`` a list of the views, or (V, B, D), more than two for losses that compare
                each view with all, as :class:`InfoNCELoss` and SogCLR without ``bimodal``.
            view2: (B, D) embeddings of the same samples: another augmentation, or another modality.
            sample_idx: (B,) integer index of each sample in the training set; rows of one sample
                are not negatives of each other. None, where the loss keeps nothing per sample: all
                rows differ.
            labels: (B,) integer classes: other samples of the class are positives, too. One of -1
                has no class. None: all -1, also where other ranks have labels.
            weight: (B,) finite weights >= 0. A sample of weight w counts as w copies of one sample:
                they are not negatives of each other, and a moving average takes one step. One of 0
                is absent, whatever it holds. None: all 1, also where other ranks have weights.

        Returns:
            Scalar, at least float32; 0, still attached to the graph, when no sample has a negative.
            With ``scope='global'`` all ranks return the loss of the joined batch, with a gradient
            for DistributedDataParallel, which averages.
        """
        views = cast(Sequence[Tensor], view1 if view2 is None else (view1, view2))
        check_tensors(**{f'view{i + 1}': x for i, x in enumerate(views)})
        is_first = is_first_batch(self, view1 if isinstance(view1, Tensor) else views[0])
        if is_first:
            _refuse_other_layouts(view1, views)
        if weight is not None:
            weight = checked_weight('weight', weight, (len(views[0]),))
            weight = weight.to(views[0].device, non_blocking=True)
            *views, sample_idx, labels = zero_absent(weight, (*views, sample_idx, labels))
        self._check(views, sample_idx)
        if sample_idx is not None and weight is None and is_first:
            warn_of_few_samples(sample_idx)
        if labels is not None:
            self._check_takes_labels()
            labels = checked_labels(labels, len(views[0]))
        dtype = reduce(torch.promote_types, (x.dtype for x in views))
        views = [self.normalized(x.to(dtype)) for x in views]
        world = training_group(self)
        together = world is not None and self.scope == 'global'
        group = world if together or self.keeps_samples else None
        batch = ContrastedBatch.of_views(views, sample_idx, group, together, weight, labels)
        total = len(batch.gathered.ids)
        self._check_batch_size(total)
        losses = self.row_losses(batch)
        self._note(batch)
        if batch.local.weight is not None and batch.gathered.weight is not None:
            losses = losses * batch.local.weight
            total = batch.gathered.weight.sum()
        return self.loss_weight * mean_over_ranks(losses, total, group if together else None)

    def normalized(self, view: Tensor) -> Tensor:
        """(n, D) rows that are compared, of the (n, D) rows of the model: of length 1."""
        return unit_rows(view)

    def set_temperature(self, tau: float, bounds: dict[str, float] | None) -> None:
        """Keep a temperature, or learn it, as ``log_tau``, between the first and last bound."""
        self.register_parameter('log_tau', None)
        if bounds is None:
            self.tau = float(tau)
            return
        check_ascending(**bounds)
        least, *_, most = bounds.values()
        self.bounds = (math.log(least), math.log(most))
        self.log_tau = scalar_parameter(math.log(tau))

    def shared_temperature(self) -> Tensor | float:
        """The temperature, a () tensor of at least float32 if it is learned."""
        if self.log_tau is None:
            return self.tau
        with torch.no_grad():  # a clamped value would have no gradient, and not return
            self.log_tau.clamp_(*self.bounds)
        return self.learnt('log_tau').exp().view(())

    def learnt(self, name: str) -> Tensor:
        """A parameter, at least float32, whose gradient is the mean over the ranks."""
        return at_least_float32(mean_gradient(getattr(self, name), joined_group(self)))

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        """(n,) losses of the samples of this rank."""
        raise NotImplementedError

    def terms(self, batch: ContrastedBatch, *args, **kwargs) -> NegativeTerms:
        """See :meth:`ContrastedBatch.terms`; notes the mean number of negatives of an anchor."""
        terms = batch.terms(*args, **kwargs)
        if terms.count.numel():
            self.diagnostics['negatives'] = terms.count.double().mean()
        return terms

    def _check(self, views, sample_idx) -> None:
        shapes = [tuple(x.shape) for x in views]
        # No set of shapes: its hash is a graph for each batch size.
        is_one_shape = all(x == shapes[0] for x in shapes)
        if len(views) < 2 or len(shapes[0]) != 2 or not is_one_shape:
            raise UserError(
                'view1 and view2 must be embeddings (samples, length) of the same samples, got '
                f'shapes {shapes[:3]}. Fix: loss(view1, view2), or with labels=classes; of one '
                'view mmrank.EmbeddingLoss(mmrank.InfoNCELoss())(embeddings, classes)'
            )
        if self.two_views and len(views) > 2:
            raise UserError(
                f'{type(self).__name__} compares two views, got {len(views)}. Fix: '
                'mmrank.InfoNCELoss(); of a third view add up loss(view1, view2) and '
                'loss(view1, view3)'
            )
        check_floats(**{f'view{i + 1}': x for i, x in enumerate(views)})
        if sample_idx is not None:
            check_sample_ids(sample_idx, len(views[0]), getattr(self, 'num_samples', 2**62))
        elif self.keeps_samples:
            raise UserError(
                f'{type(self).__name__} requires sample_idx. Fix: loss(view1, view2, '
                'sample_idx=the place of each sample in the training set); in mmpretrain keep '
                "'sample_idx' in meta_keys of PackInputs"
            )

    def _check_takes_labels(self) -> None:
        if not self.takes_labels:
            what = f'{type(self).__name__} has the views of one sample as its only positives'
            fix = 'leave labels= out, or mmrank.InfoNCELoss() without hardness_strength'
            raise UserError(f'{what}, so it takes neither labels nor a retrieval batch', fix)

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
        if batch.local.ids.numel():
            view1, view2 = (at_least_float32(x) for x in batch.local.views[:2])
            self.diagnostics['pos_score'] = batch.mean((view1 * view2).sum(1))


@torch.no_grad()
def _refuse_other_layouts(view1: Tensor | Sequence[Tensor], views: Sequence[Tensor]) -> None:
    """Raise UserError for (samples, views, length), and for two matrices of all similarities."""
    if isinstance(view1, Tensor) and view1.dim() == 3 and len(view1) > view1.size(1):
        raise UserError(
            f'views of shape {tuple(view1.shape)} are {len(view1)} views of {view1.size(1)} '
            'samples. Fix: loss(views.transpose(0, 1)) of (samples, views, length); '
            'loss(list(views)) if there are more views than samples'
        )
    a = views[0].double()
    b = views[-1].double()
    if a.dim() == 2 and a.shape == b.t().shape and len(views) == 2:
        allowed = 0.01 * a.norm()
        if (a - b.t()).norm() <= allowed < (a - b).norm():
            raise UserError(
                'view1 and view2 are each the transpose of the other, as logits are. Fix: '
                'loss(image_embeddings, text_embeddings), which computes them by its own '
                'temperature'
            )


def scalar_parameter(value: float) -> nn.Parameter:
    """(1,) float32 parameter, whatever the default dtype; fully_shard refuses one of shape ()."""
    return nn.Parameter(torch.full((1,), value, dtype=torch.float32))
