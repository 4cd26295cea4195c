"""Head that trains embeddings to search each other."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from mmengine.model import BaseModule
from torch import Tensor

from mmrank.distributed import all_labelled_rows, training_group
from mmrank.errors import UserError
from mmrank.losses.base import HeadLoss
from mmrank.losses.embeddings import EmbeddingBatch
from mmrank.losses.protocols import TrainsEmbeddings
from mmrank.losses.registered import build_loss
from mmrank.models.features import feature_rows
from mmrank.registry import MODELS
from mmrank.state import CrossBatchMemory
from mmrank.tensors import unit_rows
from mmrank.training_set import TrainingSet

from .sample_fields import ids_of, labels_of


@dataclass
class _EmbeddingRows:
    """Embeddings of images: (n, D) floats, (n, L) int64 classes, (n,) image indices."""

    embeddings: Tensor
    labels: Tensor
    ids: Tensor


@MODELS.register_module()
class RetrievalHead(BaseModule):
    """Every image of the batch searches the others, and a memory.

    The gallery of a query holds the other images of the batch, with gradient, and the entries of
    earlier batches, without. The query's own image is left out: its own row, and entries of the
    memory with its ``sample_idx`` and label; both, since data sets joined by a ``ConcatDataset``
    repeat their indices.

    In distributed training with a loss of ``scope='global'`` the batches of all ranks are one,
    exactly as in a single process; they may differ in size. With ``scope='local'`` each rank
    searches its own batch. The memory holds the entries of all ranks either way.

    Args:
        loss: Config of a loss with ``embedding_loss``: any ranking loss of mmrank, or
            ``mmrank.PMLLoss``. ``num_classes`` is filled in for ranking losses whose config leaves
            it out; it takes its settings for cosines where none is given, so
            ``dict(type='mmrank.StableAPLoss')`` is enough.
        num_classes: Number of classes C of the training set; labels are checked against it. Needed
            by losses with state per class.
        memory: Config of a :class:`mmrank.state.CrossBatchMemory`: ``size``, ``dim``,
            ``start_iter``, by default a fifth of the iterations of mmengine's runner, 0 in another
            loop. The batch is added after its loss was computed. None: no memory.
    """

    def __init__(
        self, loss: dict, num_classes: int | None = None, memory: dict | None = None
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.loss_module = build_loss('loss', loss, num_classes)
        if not isinstance(self.loss_module, TrainsEmbeddings):
            raise TypeError(
                f'loss.type={loss["type"]!r} cannot train embeddings (it has no embedding_loss); '
                "use a ranking loss such as 'mmrank.StableAPLoss', or 'mmrank.PMLLoss'"
            )
        if isinstance(self.loss_module, HeadLoss):
            self.loss_module.expect_cosines()
        self.training_set = TrainingSet()
        self.memory = None
        if memory is not None:
            self.memory = CrossBatchMemory(**memory)
            self.start_follows = 'start_iter' not in memory

    def forward(self, feats: Tensor | tuple[Tensor, ...]) -> Tensor:
        """(n, D) embeddings of length 1, at least float32; of a tuple, the last entry."""
        return unit_rows(feature_rows(feats))

    def loss(
        self, feats: Tensor | tuple[Tensor, ...], data_samples: Sequence, copies: int = 1
    ) -> dict[str, Tensor]:
        """``loss``, and mean scores of pairs of one class (``pos_score``) and two (``neg_score``).

        The features are (copies * B, D): the original batch first, which alone goes into the
        memory, then features that :func:`mmrank.models.DeepFeatureMixup` mixed. The B
        data samples have ``gt_label``, of which a loss such as ``mmrank.HAPLoss`` reads several
        levels, from coarse to fine, and, for a memory, ``sample_idx``.
        """
        self.training_set.check_classes(self.num_classes, 'RetrievalHead')
        self.training_set.check_batch(len(data_samples))
        features = feature_rows(feats)
        if features.size(0) != copies * len(data_samples):
            raise ValueError(
                f'{features.size(0)} features for {len(data_samples)} data samples x {copies}'
            )
        embeddings = unit_rows(features)
        device = embeddings.device
        labels = labels_of(data_samples, self.num_classes, device, levels=True)
        ids = torch.zeros(len(labels), dtype=torch.long, device=device)
        if self.memory is not None:
            ids = ids_of(data_samples, 'sample_idx', device)
            if labels.dim() > 1:
                raise UserError(
                    f'the memory holds one label an image, but gt_label has {labels.size(1)} '
                    'levels. Fix: memory=None, or the finest label as gt_label'
                )
            if self.start_follows:
                self.memory.start_iter = self.training_set.iterations() // 5
        levels = labels if labels.dim() == 2 else labels[:, None]
        numbers = torch.cat([levels, ids[:, None]], dim=1).repeat(copies, 1)
        joined = embeddings
        counts = [len(embeddings)]
        offset = 0
        group = training_group(self)
        together = self.loss_module.scope == 'global'
        if group is not None and (together or self.memory is not None):
            joined, numbers, counts, offset = all_labelled_rows(embeddings, numbers, group)
        rows = _EmbeddingRows(joined, numbers[:, :-1], numbers[:, -1])
        numbers = numbers[offset : offset + len(embeddings)]
        own = _EmbeddingRows(embeddings, numbers[:, :-1], numbers[:, -1])
        if together:
            batch = self._batch(rows, own, offset, group)
        else:
            batch = self._batch(own, own, 0, None)
        # The gradients of a sum are balanced here, before the length is taken away.
        batch.rows = features
        loss = self.loss_module.embedding_loss(batch)
        if self.memory is not None:
            # Of each rank, without mixed copies.
            places = torch.arange(sum(counts), device=device).split(counts)
            first = torch.cat([x[: len(x) // copies] for x in places])
            fresh = joined.detach()[first]
            self.memory.enqueue(fresh, rows.labels[first, 0], rows.ids[first])
        return dict(loss=loss, **_mean_scores(own))

    def _batch(
        self, queries: _EmbeddingRows, own: _EmbeddingRows, offset: int, group
    ) -> EmbeddingBatch:
        """Queries against own rows and this rank's share of the memory."""
        device = own.labels.device
        place = torch.arange(len(queries.labels), device=device)[:, None]
        is_itself = place == offset + torch.arange(len(own.labels), device=device)
        gallery = own.embeddings
        labels = own.labels
        if self.memory is not None:
            share = (0, 1)
            if group is not None:
                share = (dist.get_rank(group), dist.get_world_size(group))
            entries = self.memory.entries(*share)
            same_image = queries.ids[:, None] == entries.sample_ids
            same_image &= queries.labels == entries.labels
            is_itself = torch.cat([is_itself, same_image | ~entries.usable], dim=1)
            gallery = torch.cat([gallery, entries.embeddings.to(gallery)])
            labels = torch.cat([labels, entries.labels[:, None]])
        return EmbeddingBatch(queries.embeddings, queries.labels, gallery, labels, is_itself)


@torch.no_grad()
def _mean_scores(own: _EmbeddingRows) -> dict[str, Tensor]:
    batch = EmbeddingBatch.of_one_batch(own.embeddings, own.labels)
    scores = batch.scores()
    means = {}
    for name, pairs in (('pos_score', batch.is_positive()), ('neg_score', batch.is_negative())):
        total = torch.where(pairs, scores, 0).sum()
        means[name] = total / pairs.sum().clamp(min=1)
    return means
