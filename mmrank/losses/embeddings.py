"""Ranking losses of embeddings, called as the losses of pytorch-metric-learning."""

import warnings
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import is_compiling
from mmrank.distributed import all_gather_rows, rows_and_dtype, world_group
from mmrank.errors import UserError, UserTypeError
from mmrank.losses.inputs import EmbeddingBatch, check_embeddings
from mmrank.losses.interface import HeadLoss
from mmrank.losses.protocols import TrainsEmbeddings
from mmrank.losses.setting_names import NamedSettings
from mmrank.losses.unit_rows import unit_rows
from mmrank.tensors import check_tensors

#: Batches without a positive before the warning.
_WATCHED = 10


class EmbeddingLoss(NamedSettings):
    """Embeddings that search each other by their cosines, ranked by any ranking loss.

    The attribute ``loss`` is a copy of a ranking loss, which takes its settings for cosines where
    none was given, see :meth:`mmrank.losses.RankingLoss.of_cosines`; the loss itself stays as it
    is. Miners of pytorch-metric-learning give the ``indices_tuple``. Its ``CrossBatchMemory`` has a
    list of losses by name, to which a class of yours adds this one::

        class Memory(CrossBatchMemory):
            supported_losses = staticmethod(lambda: ['EmbeddingLoss'])

    Args:
        loss: A ranking loss, or :class:`mmrank.losses.PMLLoss`.

    Raises:
        TypeError: If the loss has no ``embedding_loss``.

    Example:
        >>> loss = EmbeddingLoss(StableAPLoss())
        >>> embeddings = torch.randn(32, 16, requires_grad=True)
        >>> loss(embeddings, torch.arange(32) % 8).backward()
    """

    def __init__(self, loss: TrainsEmbeddings) -> None:
        super().__init__()
        if not isinstance(loss, TrainsEmbeddings):
            raise UserTypeError(
                f'loss={loss!r:.80} cannot train embeddings (it has no embedding_loss). Fix: pass '
                'a ranking loss, as in EmbeddingLoss(StableAPLoss())'
            )
        self.loss = loss.of_cosines() if isinstance(loss, HeadLoss) else loss
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
    ) -> Tensor:
        """Scalar loss >= 0; 0, attached to the graph, where no query has a positive.

        In distributed training with ``scope='global'`` the batches of all ranks are one.

        Args:
            embeddings: (n, D) queries of any float dtype and length.
            labels: (n,) integer classes >= 0, or (n, L) from coarse to fine. One-hot labels are
                refused: pass ``labels.argmax(1)``.
            indices_tuple: (anchors, positives, anchors, negatives) or (anchors, positives,
                negatives) of a miner: each anchor ranks these alone. In one process, or with
                ``scope='local'``. None: all pairs.
            ref_embeddings: (m, D) gallery, such as a memory. None: the embeddings themselves, where
                no query searches for itself.
            ref_labels: (m,) integer classes of the gallery, or (m, L); -1 is of no query.
            ref_emb: ``ref_embeddings``, as pytorch-metric-learning names it.
        """
        ref_embeddings = ref_emb if ref_embeddings is None else ref_embeddings
        if ref_embeddings is None and ref_labels is None:
            ref_embeddings = embeddings
            ref_labels = labels
        if ref_embeddings is None or ref_labels is None:
            raise UserError(
                'ref_embeddings and ref_labels must be given together. Fix: the class of each row '
                'of the gallery as ref_labels'
            )
        check_embeddings(embeddings=embeddings, ref_embeddings=ref_embeddings)
        check_tensors(labels=labels, ref_labels=ref_labels)
        searches_itself = ref_embeddings is embeddings
        rows = unit_rows(embeddings)
        queries = rows
        gallery = rows if searches_itself else unit_rows(ref_embeddings)
        counts = [len(queries)]
        offset = 0
        group = world_group() if self.loss.scope == 'global' else None
        if group is not None:
            if indices_tuple is not None:
                raise UserError(
                    "indices_tuple with scope='global': its pairs are of one process. Fix: "
                    f"{type(self.loss).__name__}(scope='local')"
                )
            counts, dtype = rows_and_dtype(queries, group)
            offset = sum(counts[: dist.get_rank(group)])
            gallery = gallery.to(dtype)
            queries = all_gather_rows(queries.to(dtype), counts, group)
            shape = labels.shape[1:]
            labels = labels if shape else labels[:, None]
            labels = all_gather_rows(labels, counts, group).reshape(-1, *shape)
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
        batch = EmbeddingBatch(queries, labels, gallery, ref_labels, left_out, rows)
        self._look_for_positives(batch)
        return self.loss.embedding_loss(batch)

    def _look_for_positives(self, batch: EmbeddingBatch) -> None:
        """Warn, once, where the first batches show no positive: nothing is learnt from them."""
        if self._batches_to_watch == 0 or is_compiling() or batch.queries.is_meta:
            return
        self._batches_to_watch -= 1
        if bool(batch.is_positive().any()):
            self._batches_to_watch = 0
        elif self._batches_to_watch == 0:
            warnings.warn(
                f'none of the first {_WATCHED} batches has two images of one class, so nothing is '
                'learnt. Fix: a sampler that takes several images of a class, or labels that are '
                'classes and not the numbers of the images',
                stacklevel=3,
            )
