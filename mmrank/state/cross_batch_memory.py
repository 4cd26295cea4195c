"""Embeddings of the last batches."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.settings import check_count

from .base import SavedState


@dataclass
class MemoryEntries:
    """A part of the memory, of a fixed number of slots."""

    embeddings: Tensor  # (M, D) float32, without gradient
    labels: Tensor  # (M,) int64 classes
    sample_ids: Tensor  # (M,) int64 indices of the images in the data set
    usable: Tensor  # (M,) bool, False without an entry, and while the memory warms up


class CrossBatchMemory(SavedState):
    """Ring of the embeddings of the last ``size`` images.

    Features drift slowly, so features of past batches are still worth searching. Source: Wang et
    al., Cross-Batch Memory for Embedding Learning, CVPR 2020, algorithm 1.

    The state is the same on all ranks and, but for the order inside a batch, for any world size:
    all ranks enqueue the batch of all ranks, and each searches its share (:meth:`entries`). There
    is no wait for the device: empty slots are part of the share and marked. So is an entry that was
    not finite: one overflow in half precision must not spoil later batches.

    ``size`` is the number of entries, ``dim`` the length D of an embedding. The first
    ``start_iter`` batches only fill the memory: early in training the features drift fast. The
    paper takes 1000.
    """

    shape_settings = 'the size and dim of the memory'
    embeddings: Tensor  # (size, dim) float32
    # The rest are float64: mmengine's ``SyncBuffersHook`` averages integer buffers in float32,
    # which does not hold an index above 2^24.
    labels: Tensor  # (size,), -1 where there is no entry
    sample_ids: Tensor  # (size,)
    next_slot: Tensor  # (), where the next entry goes
    num_batches: Tensor  # () so far

    def __init__(self, size: int, dim: int, start_iter: int = 0) -> None:
        check_count('size of the memory', size)
        check_count('dim of the memory', dim)
        check_count('start_iter of the memory', start_iter, least=0)
        super().__init__()
        self.size = size
        self.start_iter = start_iter
        self.add_state('embeddings', (size, dim))
        self.add_state('labels', (size,), -1.0, torch.float64)
        self.add_state('sample_ids', (size,), -1.0, torch.float64)
        self.add_state('next_slot', (), dtype=torch.float64)
        self.add_state('num_batches', (), dtype=torch.float64)

    def entries(self, part: int = 0, parts: int = 1) -> MemoryEntries:
        """A share of the slots: every ``parts``-th, from ``part`` on; the rank of the world size.

        Copies, which a later :meth:`enqueue` does not change.
        """
        mine = slice(part, None, parts)
        labels = self.labels[mine].long()
        return MemoryEntries(
            self.embeddings[mine].clone(),
            labels,
            self.sample_ids[mine].long(),
            (labels >= 0) & (self.num_batches >= self.start_iter),
        )

    def enqueue(self, embeddings: Tensor, labels: Tensor, sample_ids: Tensor) -> None:
        """Put (n, D) embeddings in, over the oldest entries, with (n,) labels >= 0 and ids.

        Does nothing where the state does not move, see :class:`SavedState`. Of more than
        ``size`` the last stay. Raises ValueError if an embedding is not of the memory's length.
        """
        dim = self.embeddings.size(1)
        if embeddings.dim() != 2 or embeddings.size(1) != dim:
            raise ValueError(
                f'the memory holds embeddings of length {dim}, got shape '
                f'{tuple(embeddings.shape)}; set dim of the memory to the '
                'embedding length of the model'
            )
        if not self.moves:
            return
        count = embeddings.size(0)
        slots = self.next_slot + torch.arange(count, device=self.embeddings.device)
        slots = slots.remainder(self.size).long()
        finite = embeddings.isfinite().all(1)
        embeddings = torch.where(finite[:, None], embeddings.detach(), 0)
        labels = torch.where(finite, labels, -1)
        last = slice(max(count - self.size, 0), None)
        for buffer, values in (
            (self.embeddings, embeddings),
            (self.labels, labels),
            (self.sample_ids, sample_ids),
        ):
            buffer[slots[last]] = values[last].to(buffer.dtype)
        self.next_slot.add_(count).remainder_(self.size)
        self.num_batches.add_(1)
