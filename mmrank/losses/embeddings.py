"""Embeddings that search each other: the batch of queries, and the loss of a ranking of each."""

import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mmrank.autograd import is_compiling, violated
from mmrank.distributed import all_gather_rows, joined_group, sizes_and_dtype
from mmrank.errors import UserError, UserTypeError
from mmrank.losses.class_weights import ClassWeights
from mmrank.losses.lists import counted_and_weight
from mmrank.losses.protocols import TrainsEmbeddings
from mmrank.settings import NamedSettings
from mmrank.tensors import (
    at_least_float32,
    check_floats,
    check_tensors,
    checked_weight,
    refuse_nan,
    refuse_swapped,
    unit_rows,
)

#: Batches without a positive before the warning.
_WATCHED = 10


def _check_embeddings(**embeddings: Tensor) -> None:
    """Check that each is a matrix of floats, else TypeError or ValueError."""
    check_floats(**embeddings)
    for name, rows in embeddings.items():
        if rows.dim() != 2:
            raise ValueError(
                f'{name} must be (rows, length) embeddings, got shape {tuple(rows.shape)}'
            )


def _weighted(
    name: str, rows: Tensor, labels: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(n, D) rows and (n,) or (n, L) labels, nothing in those of weight 0; and float64 weights."""
    if weight is None:
        return rows, labels, None
    absent = checked_weight(name, weight, (len(rows),)) == 0
    labels = labels.masked_fill(absent.view(-1, *[1] * (labels.dim() - 1)), 0)
    return rows.masked_fill(absent[:, None], 1), labels, weight.double()


def _class_numbers(name: str, labels: Tensor) -> Tensor:
    """Labels that number classes, integers as int64; ValueError for one-hot and other labels."""
    if labels.dtype == torch.bool and labels.dim() == 2:
        raise UserError(
            f'{name} must be the numbers of classes, got bool of shape {tuple(labels.shape)}. Fix: '
            'labels.long().argmax(1) of one-hot labels; several classes an image are not supported'
        )
    if not labels.is_floating_point():
        return labels.long()  # a smaller type wraps the number of classes it is compared with
    refuse_nan(name, labels, 'give each image its class')
    if violated((labels == labels.floor()).all(), f'{name} are not whole numbers'):
        raise UserError(
            f'{name} must be whole numbers of classes, got numbers from {labels.min().item()} to '
            f'{labels.max().item()}. Fix: labels.long()'
        )
    return labels


def checked_labels(labels: Tensor, rows: int) -> Tensor:
    """(rows,) int64 classes of the samples of a batch; those below 0 are none."""
    check_tensors(labels=labels)
    labels = _class_numbers('labels', labels)
    if labels.shape != (rows,):
        raise UserError(
            f'labels must be one class for each sample, shape ({rows},), got '
            f'{tuple(labels.shape)}. Fix: labels[:, -1] of several levels, labels.argmax(1) of '
            'one-hot rows, views.transpose(0, 1) of (samples, views, length)'
        )
    return labels.long()


def _levels(name: str, labels: Tensor) -> Tensor:
    """(L, n) classes of each level, from coarse to fine, of (n,) or (n, L) labels."""
    labels = _class_numbers(name, labels)
    return labels.t() if labels.dim() == 2 else labels[None]


@dataclass
class EmbeddingBatch:
    """Queries and the gallery that they search.

    In distributed training with a loss of ``scope='global'`` every rank holds the queries of all
    ranks and its own share of the gallery; the gradient of the queries is summed over ranks by the
    code that gathered them.
    """

    queries: Tensor  # (Q, D) embeddings
    #: (Q,) integer classes, or (Q, L) from coarse to fine, each level refining the one before; kept
    #: is the finest, see :meth:`shared_levels`.
    query_labels: Tensor
    #: (G, D) embeddings: the images of this rank's batch, and entries of a memory without gradient.
    gallery: Tensor
    gallery_labels: Tensor  # (G,), or (G, L)
    #: (Q, G) bool, True where the entry is the query's own image, or another that it does not
    #: search for.
    is_itself: Tensor
    #: (n, D) embeddings of this rank's batch as the model gives them; None: queries.
    rows: Tensor | None = None
    #: (Q,) and (G,) floats >= 0, how often each query and each entry counts; None: once.
    query_weight: Tensor | None = None
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        check_tensors(query_labels=self.query_labels, gallery_labels=self.gallery_labels)
        _check_embeddings(queries=self.queries, gallery=self.gallery)
        if self.queries.size(1) != self.gallery.size(1):
            raise ValueError(
                f'queries and gallery must be embeddings of one length, got {self.queries.size(1)} '
                f'and {self.gallery.size(1)}; compute both by the same model'
            )
        sizes = len(self.queries), len(self.gallery)
        shapes = dict(query_labels=sizes[:1], gallery_labels=sizes[1:], is_itself=sizes)
        for name, shape in shapes.items():
            found = tuple(getattr(self, name).shape)
            if (found if name == 'is_itself' else found[:1]) != shape or len(found) > 2:
                raise ValueError(
                    f'{name} must have shape {shape} for {sizes[0]} queries '
                    f'and a gallery of {sizes[1]}, got {found}'
                )
        of_queries = _levels('query_labels', self.query_labels)
        of_gallery = _levels('gallery_labels', self.gallery_labels)
        if len(of_queries) != len(of_gallery):
            raise UserError(
                f'query_labels have {len(of_queries)} levels and gallery_labels {len(of_gallery)}. '
                'Fix: the same levels for both, from coarse to fine'
            )
        self._levels = list(zip(of_queries, of_gallery))
        self.num_levels = len(of_queries)
        self.query_labels = of_queries[-1]
        self.gallery_labels = of_gallery[-1]
        self._same_class = self.query_labels[:, None] == self.gallery_labels
        # A label of -1 in the gallery is of no query: an empty place, or a text without a class.
        if violated((self.query_labels >= 0).all(), 'a label is below 0'):
            what = f'query_labels must be >= 0, got {self.query_labels.min().item()}'
            fix = 'keep = labels >= 0; pass embeddings[keep] and labels[keep]'
            raise UserError(f'{what}, which would be a class like any other', fix)
        if self.num_levels > 1:
            self.shared_levels()

    @classmethod
    def of_one_batch(cls, embeddings: Tensor, labels: Tensor):
        """Every image searches all others: (B, D) float embeddings, (B,) integer classes."""
        itself = torch.eye(len(embeddings), dtype=torch.bool, device=embeddings.device)
        return cls(embeddings, labels, embeddings, labels, itself)

    def scores(self) -> Tensor:
        """(Q, G) inner products, at least in float32."""
        # Autocast would put the product into half precision, where close cosines tie.
        with torch.autocast(self.queries.device.type, enabled=False):
            return at_least_float32(self.queries) @ at_least_float32(self.gallery).t()

    def is_positive(self) -> Tensor:
        """(Q, G) bool: of the query's class, but not its own image."""
        return self._same_class & ~self.is_itself

    def shared_levels(self) -> Tensor:
        """(Q, G) uint8 number of levels that query and entry share.

        ValueError, on a GPU a device-side assertion, if a level does not refine the one before.
        """
        shared = torch.zeros_like(self._same_class, dtype=torch.uint8)
        for number, (queries, gallery) in enumerate(self._levels):
            same = queries[:, None] == gallery
            refines = (~same | (shared == number)).all()
            if violated(refines, 'a level does not refine the one before'):
                raise UserError(
                    f'level {number} of the labels does not refine level {number - 1}: two images '
                    'share a class there, but not one level before. Fix: labels from coarse to '
                    'fine, and class numbers that are unique in their level; one-hot labels become '
                    'classes by labels.argmax(1)'
                )
            shared += same
        return shared

    def list_options(self) -> dict[str, Tensor | None]:
        """Classes of the lists, and how often each list, and (Q, G) each score counts."""
        # What is absent is left out already.
        weight = None if self.weight is None else counted_and_weight(self.weight)[1]
        weight = None if weight is None else weight.expand(self.is_itself.shape)
        return dict(list_classes=self.query_labels, weight=weight, list_weight=self.query_weight)

    def refuse_weights(self, loss: str) -> None:
        """Raise UserError where a loss that takes no weights gets some."""
        if self.query_weight is not None or self.weight is not None:
            raise UserError(
                f'{loss} takes no weights. Fix: leave weight= out, or EmbeddingLoss(StableAPLoss())'
            )

    def is_negative(self) -> Tensor:
        """(Q, G) bool: of another class."""
        return ~self._same_class & ~self.is_itself


class TakesCosines(nn.Module):
    """A loss of scores that may be the cosines of embeddings."""

    class_weights: ClassWeights | None
    box_input: str | None
    requires_boxes: bool
    #: Why the loss has no use for a retrieval batch; with a ``box_input`` it is for want of boxes.
    no_retrieval = ''
    #: The loss that the refusal of a retrieval batch names.
    for_retrieval = 'StableAPLoss'

    def check_retrieval(self) -> None:
        """Raise UserError where the loss or its options have no use for embeddings."""
        why = self.no_retrieval
        if self.class_weights is not None:
            why = 'has a class_weight, which is of the columns of scores'
        if self.box_input is not None and self.requires_boxes:
            why = f'requires the boxes of the positives ({self.box_input!r})'
        if why:
            raise UserError(
                f'{type(self).__name__} {why}, which a retrieval batch does not have. Fix: another '
                f'loss: use mmrank.{self.for_retrieval}, or quality=0 of one that has the option'
            )

    def expect_cosines(self) -> None:
        """Take the settings for cosines where none was given; most defaults are such already."""
        self.check_retrieval()

    def of_cosines(self):
        """A copy that expects cosines; it shares the parameters, which an optimiser may have."""
        copied = deepcopy(self, {id(x): x for x in self.parameters()})
        copied.expect_cosines()
        return copied


class EmbeddingLoss(NamedSettings):
    """Embeddings that search each other by their cosines, ranked by any ranking loss.

    The attribute ``loss`` is a copy of a ranking loss, with its settings for cosines where none was
    given. Miners of pytorch-metric-learning give the ``indices_tuple``. Its ``CrossBatchMemory``
    has a list of losses by name, to which a class of yours adds this one::

        class Memory(CrossBatchMemory):
            supported_losses = staticmethod(lambda: ['EmbeddingLoss'])

    Args:
        loss: A ranking loss, or :class:`mmrank.losses.PMLLoss`.

    Example:
        >>> loss = EmbeddingLoss(StableAPLoss())
        >>> embeddings = torch.randn(32, 16, requires_grad=True)
        >>> loss(embeddings, torch.arange(32) % 8).backward()
    """

    def __init__(self, loss: TrainsEmbeddings) -> None:
        super().__init__()
        if not isinstance(loss, TrainsEmbeddings):
            raise UserTypeError(
                f'loss={loss!r:.80} cannot train embeddings (it has no embedding_loss). Fix: a '
                'ranking loss, as in EmbeddingLoss(StableAPLoss()); one of pytorch-metric-learning '
                'as EmbeddingLoss(PMLLoss(loss))'
            )
        of_cosines = getattr(loss, 'of_cosines', None)
        self.loss = loss if of_cosines is None else of_cosines()
        self._batches_to_watch = _WATCHED

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        *,
        ref_emb: Tensor | None = None,
        weight: Tensor | None = None,
        ref_weight: Tensor | None = None,
    ) -> Tensor:
        """Scalar loss >= 0; 0, attached to the graph, where no query has a positive.

        In distributed training with ``scope='global'`` the batches of all ranks are one.

        Args:
            embeddings: (n, D) queries of any float dtype and length.
            labels: (n,) integer classes >= 0, or (n, L) from coarse to fine.
            indices_tuple: (anchors, positives, anchors, negatives) or (anchors, positives,
                negatives) of a miner: each anchor ranks these alone. In one process, or with
                ``scope='local'``. None: all pairs.
            ref_embeddings: (m, D) gallery, such as a memory. None: the embeddings themselves, where
                no query searches for itself.
            ref_labels: (m,) integer classes of the gallery, or (m, L); -1 is of no query.
            ref_emb: ``ref_embeddings``, as pytorch-metric-learning names it.
            weight: (n,) numbers >= 0: a query of weight w counts as w queries in the mean. Without
                ``ref_embeddings`` it is also the weight in the gallery of the others.
            ref_weight: (m,) numbers >= 0: an image of the gallery of weight w counts as w images.
        """
        ref_embeddings = ref_emb if ref_embeddings is None else ref_embeddings
        if ref_embeddings is None and ref_labels is None:
            ref_embeddings = embeddings
            ref_labels = labels
            ref_weight = weight if ref_weight is None else ref_weight
        if ref_embeddings is None or ref_labels is None:
            what = 'ref_embeddings and ref_labels must be given together'
            raise UserError(what, 'the class of each row of the gallery as ref_labels')
        refuse_swapped('embeddings', embeddings, labels)
        _check_embeddings(embeddings=embeddings, ref_embeddings=ref_embeddings)
        check_tensors(labels=labels, ref_labels=ref_labels)
        searches_itself = ref_embeddings is embeddings
        queries, labels, weight = _weighted('weight', embeddings, labels, weight)
        gallery, ref_labels, ref_weight = _weighted(
            'ref_weight', ref_embeddings, ref_labels, ref_weight
        )
        queries = unit_rows(queries)
        gallery = queries if searches_itself else unit_rows(gallery)
        counts = [len(queries)]
        offset = 0
        group = joined_group(self.loss)
        if group is not None:
            if indices_tuple is not None:
                what = "indices_tuple with scope='global': its pairs are of one process"
                raise UserError(what, f"{type(self.loss).__name__}(scope='local')")
            counts = [len(queries), int(weight is not None)]
            sizes, dtype = sizes_and_dtype(counts, queries.dtype, group, queries.device, queries)
            counts, weighted = zip(*sizes)
            if any(weighted) and weight is None:  # once, also where other ranks have weights
                weight = queries.new_ones(len(queries), dtype=torch.float64)
            offset = sum(counts[: dist.get_rank(group)])
            gallery = gallery.to(dtype)
            queries = all_gather_rows(queries.to(dtype), counts, group)
            shape = labels.shape[1:]
            labels = labels if shape else labels[:, None]
            labels = all_gather_rows(labels, counts, group).reshape(-1, *shape)
            if weight is not None:
                weight = all_gather_rows(weight[:, None], counts, group)[:, 0]
        left_out = torch.zeros(sum(counts), len(gallery), dtype=torch.bool, device=queries.device)
        if searches_itself:
            left_out.diagonal(-offset).fill_(True)
        if indices_tuple is not None:
            chosen = torch.zeros_like(left_out)
            anchors, positives, *rest = indices_tuple
            chosen[anchors, positives] = True
            chosen[rest[0] if len(rest) == 2 else anchors, rest[-1]] = True
            left_out |= ~chosen
        gallery = gallery.to(queries.dtype)
        if ref_weight is not None:
            left_out |= ref_weight == 0
        if weight is not None:
            left_out |= weight[:, None] == 0
        weights = weight, ref_weight
        batch = EmbeddingBatch(queries, labels, gallery, ref_labels, left_out, embeddings, *weights)
        self._look_for_positives(batch)
        return self.loss.embedding_loss(batch)

    def _look_for_positives(self, batch: EmbeddingBatch) -> None:
        """Warn, once, where the first batches show no positive: nothing is learnt from them."""
        if self._batches_to_watch == 0 or is_compiling() or batch.queries.is_meta:
            return
        has_positive = bool(batch.is_positive().any())
        self._batches_to_watch = 0 if has_positive else self._batches_to_watch - 1
        if self._batches_to_watch == 0 and not has_positive:
            warnings.warn(
                f'none of the first {_WATCHED} batches has two images of one class, so nothing is '
                'learnt. Fix: a sampler that takes several images of a class, or labels that are '
                'classes and not the numbers of the images',
                stacklevel=3,
            )
