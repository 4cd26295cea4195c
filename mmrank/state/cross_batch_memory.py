"""Embeddings of the last batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.checks import check_count, one_of
from mmrank.errors import UserError

from .base import SavedState
from .sharding import ShardedState

_ROWS = ('embeddings', 'labels', 'sample_ids')


@dataclass
class MemoryEntries:
    """A part of the memory, of a fixed number of slots."""

    embeddings: Tensor  # (M, D) float32, without gradient
    labels: Tensor  # (M,) int64 classes
    sample_ids: Tensor  # (M,) int64 indices of the images in the data set
    usable: Tensor  # (M,) bool, False without an entry, and while the memory warms up


class CrossBatchMemory(ShardedState, SavedState):
    """Ring of the embeddings of the last ``size`` images.

    Features drift slowly, so features of past batches are still worth searching. Source: Wang et
    al., Cross-Batch Memory for Embedding Learning, CVPR 2020, algorithm 1.

    The state is the same on all ranks and, but for the order inside a batch, for any world size:
    all ranks enqueue the batch of all ranks, and each searches its share (:meth:`entries`). There
    is no wait for the device: empty slots are part of the share and marked. So is an entry that was
    not finite: one overflow in half precision must not spoil later batches.

    With ``storage='sharded'`` each rank keeps the slots that it searches and no others: the memory
    takes 1/W of the bytes, nothing more is sent, and the results are the same.

    Args:
        size: Number of entries.
        dim: Length D of an embedding.
        start_iter: Batches that only fill the memory before its entries may be used: early in
            training the features drift fast. The paper takes 1000.
        storage: ``device``: all slots on all ranks. ``sharded``.
    """

    shape_settings = 'the size and dim of the memory'
    #: Of a shard these three are its rows and one more, and no buffers.
    embeddings: Tensor  # (size, dim) float32
    # The rest are float64: mmengine's ``SyncBuffersHook`` averages integer buffers in float32,
    # which does not hold an index above 2^24.
    labels: Tensor  # (size,), -1 where there is no entry
    sample_ids: Tensor  # (size,)
    next_slot: Tensor  # (), where the next entry goes
    num_batches: Tensor  # () so far

    def __init__(self, size: int, dim: int, start_iter: int = 0, storage: str = 'device') -> None:
        check_count('size of the memory', size)
        check_count('dim of the memory', dim)
        check_count('start_iter of the memory', start_iter, least=0)
        one_of('storage of the memory', storage, ('device', 'sharded'))
        super().__init__(size, storage == 'sharded')
        self.start_iter = start_iter
        whole = self.shard.is_whole
        # What goes to the slots of other ranks is written to one row more:
        # to look which those are, the host would wait for the device.
        rows = size if whole else self.shard.rows + 1
        values = dict(embeddings=torch.zeros(rows, dim))
        for name in ('labels', 'sample_ids'):
            values[name] = torch.full((rows,), -1.0, dtype=torch.float64)
        for name, value in values.items():
            if whole:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        for name in ('next_slot', 'num_batches'):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        if not self.shard.is_whole:
            for name in _ROWS:
                setattr(self, name, getattr(self, name).to(self.next_slot.device))
        return self

    def own_rows(self) -> dict[str, Tensor]:
        return {n: getattr(self, n)[: self.shard.rows] for n in _ROWS}

    def refuse_rows(self, key: str, shape: Sequence[int]) -> None:
        own = self.shard.size, self.embeddings.size(1)
        raise ValueError(
            f'{key} of the checkpoint has shape {tuple(shape)}, but the memory of the model is '
            f'{own}: set {self.shape_settings} as in the training of the checkpoint, or remove the '
            'key from the checkpoint to start with fresh values'
        )

    def entries(self, part: int = 0, parts: int = 1) -> MemoryEntries:
        """A share of the slots: every ``parts``-th, from ``part`` on; the rank of the world size.

        Copies, which a later :meth:`enqueue` does not change. Raises UserError if that is not the
        share that this process has.
        """
        mine = slice(part, None, parts)
        if self.group is not None:
            if (part, parts) != (self.shard.part, self.shard.parts):
                raise UserError(
                    "a memory with storage='sharded' is searched by all processes together. Fix: "
                    "scope='global' of the loss, or storage='device' of the memory"
                )
            mine = slice(0, self.shard.rows)
        labels = self.labels[mine].long()
        return MemoryEntries(
            self.embeddings[mine].clone(),
            labels,
            self.sample_ids[mine].long(),
            (labels >= 0) & (self.num_batches >= self.start_iter),
        )

    def enqueue(self, embeddings: Tensor, labels: Tensor, sample_ids: Tensor) -> None:
        """Put (n, D) embeddings in, over the oldest entries, with (n,) labels >= 0 and ids.

        Does nothing where the state does not move, see :class:`TrainingState`. Of more than
        ``size`` the last stay. Raises ValueError if an embedding is not of the memory's length.
        """
        size = self.shard.size
        dim = self.embeddings.size(1)
        if embeddings.dim() != 2 or embeddings.size(1) != dim:
            raise ValueError(
                f'the memory holds embeddings of length {dim}, got shape '
                f'{tuple(embeddings.shape)}; set dim of the memory to the '
                'embedding length of the model'
            )
        if not self.moves:
            return
        self.before_training()
        count = embeddings.size(0)
        slots = self.next_slot + torch.arange(count, device=self.embeddings.device)
        slots = slots.remainder(size).long()
        if not self.shard.is_whole:
            mine = slots % self.shard.parts == self.shard.part
            slots = torch.where(mine, slots // self.shard.parts, self.shard.rows)
        finite = embeddings.isfinite().all(1)
        embeddings = torch.where(finite[:, None], embeddings.detach(), 0)
        labels = torch.where(finite, labels, -1)
        last = slice(max(count - size, 0), None)
        for buffer, values in (
            (self.embeddings, embeddings),
            (self.labels, labels),
            (self.sample_ids, sample_ids),
        ):
            buffer[slots[last]] = values[last].to(buffer.dtype)
        self.next_slot.add_(count).remainder_(size)
        self.num_batches.add_(1)
