"""Embeddings of the last batches."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .saved_state import SavedState
from .updates import inside_backward


@dataclass
class MemoryEntries:
    """A part of the memory, of a fixed number of slots.

    Attributes:
        embeddings: (M, D) float32, without gradient.
        labels: (M,) int64 classes.
        sample_ids: (M,) int64 indices of the images in the data set.
        usable: (M,) bool, False for slots without an entry, and all while
            the memory warms up.
    """

    embeddings: Tensor
    labels: Tensor
    sample_ids: Tensor
    usable: Tensor


class CrossBatchMemory(SavedState):
    """Ring of the embeddings of the last ``size`` images.

    Features drift slowly, so those of past batches still are worth
    searching. Source: Wang et al., Cross-Batch Memory for Embedding Learning,
    CVPR 2020, algorithm 1.

    The state is the same on all ranks and, but for the order inside a batch,
    for any world size: all ranks enqueue the batch of all ranks, and each
    searches its share (:meth:`entries`). There is no wait for the device:
    empty slots are part of the share and marked. So is an entry that was not
    finite: one overflow in half precision must not spoil later batches.

    Args:
        size: Number of entries.
        dim: Length D of an embedding.
        start_iter: Batches that only fill the memory before its entries may
            be used: early in training the features drift fast. The paper
            takes 1000.

    Attributes:
        embeddings: (size, dim) float32 buffer.
        labels: (size,) float64 buffer, -1 where there is no entry.
        sample_ids: (size,) float64 buffer.
        next_slot: () float64 buffer, where the next entry goes.
        num_batches: () float64 buffer, batches so far. (These are integers.
            But mmengine's ``SyncBuffersHook`` averages integer buffers in
            float32, which does not hold an index above 2^24.)

    Raises:
        ValueError: On a parameter out of range.
    """

    shape_settings = 'the size and dim of the memory'
    embeddings: Tensor
    labels: Tensor
    sample_ids: Tensor
    next_slot: Tensor
    num_batches: Tensor

    def __init__(self, size: int, dim: int, start_iter: int = 0) -> None:
        super().__init__()
        for name, value, least in (
            ('size', size, 1),
            ('dim', dim, 1),
            ('start_iter', start_iter, 0),
        ):
            if not (isinstance(value, int) and value >= least):
                raise ValueError(
                    f'{name} of the memory must be an int >= {least}, got '
                    f'{value!r}'
                )
        self.start_iter = start_iter
        self.register_buffer('embeddings', torch.zeros(size, dim))
        for name in ('labels', 'sample_ids'):
            self.register_buffer(
                name, torch.full((size,), -1.0, dtype=torch.float64)
            )
        for name in ('next_slot', 'num_batches'):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def _apply(self, fn, recurse=True):
        # model.half() must not round the state.
        dtypes = {name: b.dtype for name, b in self.named_buffers()}
        buffers = dict(self.named_buffers())
        super()._apply(fn, recurse)
        for name, dtype in dtypes.items():
            now = getattr(self, name)
            if now.dtype != dtype:
                setattr(self, name, buffers[name].to(now.device))
        return self

    def extra_repr(self) -> str:
        size, dim = self.embeddings.shape
        return f'size={size}, dim={dim}, start_iter={self.start_iter}'

    def entries(self, part: int = 0, parts: int = 1) -> MemoryEntries:
        """A share of the slots: every ``parts``-th, from ``part`` on.

        Args:
            part: Which share, in ``[0, parts)``: the rank.
            parts: Number of shares: the world size.

        Returns:
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

    @torch.no_grad()
    def enqueue(
        self, embeddings: Tensor, labels: Tensor, sample_ids: Tensor
    ) -> None:
        """Put a batch in, over the oldest entries. Does nothing in eval mode.

        Nor does it when a checkpointed forward is recomputed.

        Args:
            embeddings: (n, D) floats. Of more than ``size`` the last stay.
            labels: (n,) integers >= 0.
            sample_ids: (n,) integers.

        Raises:
            ValueError: If an embedding is not of the memory's length.
        """
        size, dim = self.embeddings.shape
        if embeddings.dim() != 2 or embeddings.size(1) != dim:
            raise ValueError(
                f'the memory holds embeddings of length {dim}, got shape '
                f'{tuple(embeddings.shape)}; set dim of the memory to the '
                'embedding length of the model'
            )
        if not self.training or inside_backward():
            return
        count = embeddings.size(0)
        slots = self.next_slot + torch.arange(
            count, device=self.embeddings.device
        )
        slots = slots.remainder(size).long()
        finite = embeddings.isfinite().all(1)
        embeddings = torch.where(finite[:, None], embeddings, 0)
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
