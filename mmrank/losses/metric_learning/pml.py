"""Losses of pytorch-metric-learning behind the interface of this package."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from mmrank.distributed import all_gather_rows, joined_group, sizes_and_dtype
from mmrank.errors import UserError, UserKeyError, UserTypeError
from mmrank.imports import required_package
from mmrank.losses.embeddings import EmbeddingBatch, EmbeddingLoss
from mmrank.settings import ScopedLoss
from mmrank.tensors import at_least_float32

from .pml_rankings import RANKINGS

_INSTALL = "pip install 'pytorch-metric-learning>=2.9'"
# Options of a loss or miner that are modules, and where these are found.
_PARTS = {'distance': 'distances', 'reducer': 'reducers', 'embedding_regularizer': 'regularizers'}


class PMLLoss(ScopedLoss):
    """A loss of pytorch-metric-learning for queries and their gallery.

    Takes its pair losses (contrastive, multi-similarity, NT-Xent, circle ...),
    ``TripletMarginLoss``, ``MarginLoss``, ``FastAPLoss`` and ``PNPLoss``, and its losses with a
    weight or proxy for each class (proxy anchor, proxy NCA, soft triple, ArcFace, normalised
    softmax ...): give their parameters to the optimiser. A query never meets its own image, which
    the package's PNP counts as a first positive. For cross-batch memory (XBM) set ``memory`` of
    ``mmrank.RetrievalHead``: it is saved and resumed, whereas the package's own
    ``CrossBatchMemory`` keeps its write position outside of its ``state_dict``.

    Embeddings are used in float32 at least; a NaN among them makes the loss NaN, where the reducers
    of the package would drop it. The pairs are read from the device: the host waits for it.

    Args:
        loss: The loss of the package, its name, or its config, as ``dict(type='CircleLoss',
            m=0.4)``; ``distance``, ``reducer`` and ``embedding_regularizer`` are configs
            themselves.
        miner: Likewise a miner, which chooses the pairs; None takes all. With a memory a miner sees
            the query's own image as a candidate and the pair is dropped afterwards: do not use
            one that selects the easiest positive. A random miner draws on every rank for itself,
            and the gradient is the mean of the draws.
    """

    def __init__(
        self,
        loss: Mapping | str | nn.Module,
        miner: Mapping | str | nn.Module | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.loss: Any = _build_part('losses', loss, 'loss')
        _check_loss(self.loss)
        self.ranking = RANKINGS.get(type(self.loss).__name__)
        self.of_triplets = isinstance(self.loss, _triplet_losses())
        #: Classes that have a weight or a proxy; None for losses of pairs.
        self.proxy_classes: int | None = None
        if isinstance(self.loss, _package('losses').WeightRegularizerMixin):
            # Some leave num_classes at 0.
            self.proxy_classes = self.loss.num_classes or (
                self.loss.proxies.size(0) if hasattr(self.loss, 'proxies') else self.loss.W.size(1)
            )
        self.miner = None
        if miner is not None:
            if self.ranking is not None or self.proxy_classes is not None:
                raise UserError(
                    f'miner={miner!r} chooses pairs of images, and {type(self.loss).__name__} '
                    'takes all of them, or classes. Fix: remove the miner'
                )
            self.miner = _build_part('miners', miner, 'miner')

    def forward(self, embeddings: Tensor, labels: Tensor, *args, **kwargs) -> Tensor:
        """Scalar loss of (n, D) embeddings and (n,) classes, see :meth:`EmbeddingLoss.forward`."""
        return EmbeddingLoss(self)(embeddings, labels, *args, **kwargs)

    def embedding_loss(self, batch: EmbeddingBatch) -> Tensor:
        """Scalar loss of a retrieval batch; 0, attached to the graph, when there is no pair."""
        batch.refuse_weights('PMLLoss')
        if self.proxy_classes is not None:
            return self._proxy_loss(batch, self.proxy_classes)
        group = joined_group(self)
        if group is not None:
            batch = _with_gallery_of_all_ranks(batch, group)
        dtype = torch.promote_types(batch.queries.dtype, torch.float32)
        queries = batch.queries.to(dtype)
        same = batch.gallery is batch.queries
        gallery = queries if same else batch.gallery.to(dtype)
        # Both stay attached where no pair is, and no NaN gets lost.
        value = 0 * (queries.sum() + gallery.sum())
        with torch.autocast(queries.device.type, enabled=False):
            if self.ranking is not None:
                value = value + self._ranking_loss(self.ranking, batch, queries, gallery)
            elif len(queries) and len(gallery):
                pairs = self._pairs(batch, queries, gallery)
                searched = dict(ref_emb=gallery, ref_labels=batch.gallery_labels)
                value = value + self.loss(queries, batch.query_labels, pairs, **searched)
        return self.loss_weight * value

    def _proxy_loss(self, batch: EmbeddingBatch, classes: int) -> Tensor:
        labels = batch.query_labels
        # Without either each image of this rank's batch is one of the queries.
        if not (batch.is_itself.sum(0) == 1).all():
            raise UserError(
                f'{type(self.loss).__name__} compares queries with classes: a gallery, a memory or '
                'the pairs of a miner would have no effect. Fix: loss(embeddings, labels) alone, '
                'memory=None of the head, or a loss of pairs'
            )
        if len(labels) and int(labels.max()) >= classes:
            raise UserError(
                f'a label is {int(labels.max())}, but {type(self.loss).__name__} has '
                f'num_classes={classes}. Fix: the number of classes of the training set'
            )
        queries = at_least_float32(batch.queries)
        value = 0 * (queries.sum() + batch.gallery.sum())
        if len(queries):
            with torch.autocast(queries.device.type, enabled=False):
                value = value + self.loss(queries, labels)
        return self.loss_weight * value

    def _ranking_loss(self, ranking, batch: EmbeddingBatch, queries: Tensor, gallery: Tensor):
        """Loss of the queries that have a positive, each of which ranks the gallery."""
        is_positive = batch.is_positive()
        has_positive = is_positive.any(1)
        if not has_positive.any():
            return queries.new_zeros(())
        distances = self.loss.distance(queries, gallery)
        losses = ranking(self.loss, distances, is_positive, ~batch.is_itself)[has_positive]
        indices = has_positive.nonzero()[:, 0]
        found = {'loss': dict(losses=losses, indices=indices, reduction_type='element')}
        self.loss.add_embedding_regularization_to_loss_dict(found, queries)
        return self.loss.reducer(found, queries, batch.query_labels)

    def _pairs(self, batch: EmbeddingBatch, queries: Tensor, gallery: Tensor) -> tuple[Tensor, ...]:
        """Indices of pairs or triplets as the loss takes them."""
        is_positive = batch.is_positive()
        is_negative = batch.is_negative()
        if self.miner is not None:
            mined = self._mine(self.miner, batch, queries, gallery)
            if len(mined) == 3 or not self.of_triplets:
                return mined
            is_positive = torch.zeros_like(is_positive)
            is_positive[mined[:2]] = True
            is_negative = torch.zeros_like(is_negative)
            is_negative[mined[2:]] = True
        anchors, positives = is_positive.nonzero(as_tuple=True)
        if self.of_triplets:
            pair, negatives = is_negative[anchors].nonzero(as_tuple=True)
            return anchors[pair], positives[pair], negatives
        return anchors, positives, *is_negative.nonzero(as_tuple=True)

    @staticmethod
    def _mine(
        miner: nn.Module, batch: EmbeddingBatch, queries: Tensor, gallery: Tensor
    ) -> tuple[Tensor, ...]:
        """What the miner chooses, without a query's own image."""
        itself = batch.is_itself
        diagonal = torch.eye(len(itself), dtype=itself.dtype, device=itself.device)
        if torch.equal(itself, diagonal):
            # The gallery is the queries. The miner leaves the own image out by itself, and before
            # it compares anything.
            mined = miner(queries, batch.query_labels)
        else:
            # Empty slots of a memory are not passed to the miner.
            columns = (~itself.all(0)).nonzero()[:, 0]
            mined = miner(
                queries, batch.query_labels, gallery[columns], batch.gallery_labels[columns]
            )
            # Queries are at positions 0 and 2 of pairs, at 0 of triplets.
            of_queries = (0, 2) if len(mined) == 4 else (0,)
            mined = [x if i in of_queries else columns[x] for i, x in enumerate(mined)]
        if len(mined) == 3:
            anchors, positives, negatives = mined
            keep = ~(itself[anchors, positives] | itself[anchors, negatives])
            return anchors[keep], positives[keep], negatives[keep]
        pairs = []
        for anchors, others in (mined[:2], mined[2:]):
            keep = ~itself[anchors, others]
            pairs += [anchors[keep], others[keep]]
        return tuple(pairs)


def _with_gallery_of_all_ranks(batch: EmbeddingBatch, group) -> EmbeddingBatch:
    """The batch as a single process would have it.

    The gradient of the gallery is summed over ranks, as the queries' gradient is by who gathered
    them: all ranks compute one loss, and the mean of DistributedDataParallel makes it count once.
    """
    gallery = batch.gallery
    sizes, dtype = sizes_and_dtype([len(gallery)], gallery.dtype, group, gallery.device)
    counts = [rows for (rows,) in sizes]
    # uint8: not every backend sends bool.
    itself = batch.is_itself.t().to(torch.uint8)
    return EmbeddingBatch(
        batch.queries,
        batch.query_labels,
        all_gather_rows(gallery.to(dtype), counts, group),
        all_gather_rows(batch.gallery_labels[:, None], counts, group)[:, 0],
        all_gather_rows(itself, counts, group).t().bool(),
    )


def _build_part(place: str, config: Mapping | str | nn.Module, name: str) -> nn.Module:
    """Build a loss, miner, distance, reducer or regulariser; ``name`` is for messages."""
    package = _package(place)
    if isinstance(config, nn.Module):
        return config
    settings = {'type': config} if isinstance(config, str) else config
    if not isinstance(settings, Mapping) or 'type' not in settings:
        what = f"{name} must be a module, a name, or a dict with a 'type', got {config!r:.80}"
        fix = f'{place}.TYPE(...) of pytorch-metric-learning, or dict(type=TYPE, ...)'
        raise UserTypeError(what, fix)
    options: dict[str, Any] = dict(settings)
    kind = options.pop('type')
    part = getattr(package, kind, None) if isinstance(kind, str) else None
    if part is None:
        near = get_close_matches(str(kind), dir(package), cutoff=0.5)
        what = f'{name}.type={kind!r} is not in pytorch_metric_learning.{place}'
        raise UserKeyError(what, f'{near[0] if near else "a name of that package"!r}')
    for key, of in _PARTS.items():
        if options.get(key) is not None:
            options[key] = _build_part(of, options[key], f'{name}.{key}')
    return part(**options)


def _check_loss(loss: nn.Module) -> None:
    """Raise ValueError for a loss that does not accept the pairs to take."""
    losses = _package('losses')
    kind = type(loss).__name__
    fits = losses.GenericPairLoss, losses.FastAPLoss, losses.PNPLoss, *_triplet_losses()
    if not isinstance(loss, (*fits, losses.WeightRegularizerMixin)):
        raise ValueError(
            f'loss.type={kind!r} takes its pairs from the labels alone, so a query could not be '
            'left out of its own gallery. Use a pair loss (ContrastiveLoss, MultiSimilarityLoss, '
            'NTXentLoss, CircleLoss ...), TripletMarginLoss, MarginLoss, FastAPLoss or PNPLoss; '
            "SmoothAP is type='mmrank.SmoothAPLoss'"
        )
    if getattr(loss, 'triplets_per_anchor', 'all') != 'all':
        what = f'triplets_per_anchor={loss.triplets_per_anchor!r} of {kind} would have no effect'
        raise ValueError(f"{what}: triplets are of the gallery; use 'all', or a miner")
    if getattr(loss, 'swap', False):
        raise ValueError(
            f'swap=True of {kind} compares positives with negatives as if the '
            'gallery were the queries; set it to False'
        )
    for part in loss.modules():
        if type(part).__name__ in ('PerAnchorReducer', 'DoNothingReducer'):
            what = f'{type(part).__name__} does not return one number for queries and a gallery'
            raise ValueError(f'{what}; use MeanReducer or AvgNonZeroReducer')


def _triplet_losses() -> tuple[type, ...]:
    losses = _package('losses')
    return losses.TripletMarginLoss, losses.MarginLoss


def _package(place: str):
    with required_package('pytorch_metric_learning', 'mmrank.PMLLoss', _INSTALL):
        return import_module(f'pytorch_metric_learning.{place}')
