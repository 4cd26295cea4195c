"""Keys that pass from rank to rank, and mean exp over their similarities."""

from collections.abc import Iterator, Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import Function, once_differentiable

from .terms import ExpSums, NegativeTerms, SameSample, similarity_strips

# Keys and gradients may be under way at once.
_KEYS, _GRADIENTS = 1, 2


class KeyRing:
    """Shows every rank the rows of all others without gathering them.

    The rows of a rank are a block. Each rank begins with its own one, passes it on to the rank
    after it and gets the block of the rank before; while it works with one block the next one is
    under way. A rank never holds more than its own block and two others, whatever the number of
    ranks; what it receives in all is what a gather would send. Source: the chunked computation of
    Zhai et al., Sigmoid Loss for Language Image Pre-Training, ICCV 2023, section 3.3.

    All ranks must go through all blocks, each the same number of times.

    Args:
        counts: Rows of each rank, which may differ, also be 0.
        group: Process group; None for a single process, which has one block.
    """

    def __init__(self, counts: Sequence[int], group: 'dist.ProcessGroup | None' = None) -> None:
        self.counts, self.group = list(counts), group
        self.rank = 0 if group is None else dist.get_rank(group)

    def blocks(self, *own: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield the (n_r, ...) tensors of each rank, the own ones first; not to be written to."""
        held, size = own, len(self.counts)
        for step in range(size):
            arriving, works = (), []
            if step + 1 < size:
                owner = (self.rank - step - 1) % size
                arriving = tuple(_like(x, self.counts[owner]) for x in own)
                works = self._pass_on(held, arriving, _KEYS)
            yield held
            for work in works:
                work.wait()
            held = arriving

    def blocks_and_gradients(
        self, result: list[Tensor], *own: Tensor
    ) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
        """Yield the blocks, each with zeros like its first tensor, to which to add its gradient.

        In the end the list ``result`` has what all ranks added to this rank's gradient.
        """
        size, arriving, works = len(self.counts), None, []
        for step, held in enumerate(self.blocks(*own)):
            part = torch.zeros_like(held[0])
            yield held, part
            for work in works:
                work.wait()
            if arriving is not None:
                part += arriving
            result[:] = [part]
            if size > 1:
                # The gradient of the block that the rank before has held.
                owner = (self.rank - step - 1) % size
                arriving = _like(part, self.counts[owner])
                works = self._pass_on((part,), (arriving,), _GRADIENTS)
        for work in works:
            work.wait()
        if arriving is not None:
            result[:] = [arriving]

    def of_views(self, number: int) -> 'KeyRing':
        """A ring for several rows of each of the samples of this one."""
        return KeyRing([number * x for x in self.counts], self.group)

    def terms(self, anchors, positives, keys, tau, anchor_ids, key_ids, limit) -> NegativeTerms:
        """See :func:`~.terms.negative_terms`."""
        dtype = torch.promote_types(anchors.dtype, torch.float32)
        anchors, positives, keys = (x.to(dtype) for x in (anchors, positives, keys))
        with torch.autocast(anchors.device.type, enabled=False):
            tau = torch.as_tensor(tau, dtype=dtype, device=anchors.device).expand(len(anchors))
            own = (anchors * positives).sum(1)
            found = RingLogMeanExp.apply(anchors, keys, own, tau, anchor_ids, key_ids, self, limit)
        return NegativeTerms(*found)

    def _pass_on(self, sent, arriving, kind: int) -> list:
        """Start to send to the rank after, and to receive from that before."""
        size, group = len(self.counts), cast(dist.ProcessGroup, self.group)
        after, before = (dist.get_global_rank(group, (self.rank + i) % size) for i in (1, -1))
        # Both sides know which blocks are empty.
        transfers = [
            dist.P2POp(what, x.contiguous(), peer, group, tag=10 * kind + i)
            for what, tensors, peer in ((dist.isend, sent, after), (dist.irecv, arriving, before))
            for i, x in enumerate(tensors)
            if x.numel()
        ]
        return dist.batch_isend_irecv(transfers) if transfers else []


def _like(own: Tensor, rows: int) -> Tensor:
    return own.new_empty((rows, *own.shape[1:]))


class RingLogMeanExp(Function):
    """``log mean exp(h/tau)`` of anchors over the keys of all ranks.

    Returns also the mean of h and the number of negatives, both without gradient. A similarity is
    computed for each of its sides, and again in backward, for which the keys travel once more.
    """

    @staticmethod
    def forward(ctx, rows, keys, positive, tau, row_ids, key_ids, ring, limit):
        sums = ExpSums(positive, tau)
        count = torch.zeros_like(row_ids, dtype=torch.long)
        for block, block_ids in ring.blocks(keys, key_ids):
            same = SameSample(row_ids, block_ids)
            count += same.rows_others
            for part, strip, own in _strips(rows, block, same, limit):
                sums.take(strip, part, 1, own)
        log_mean, mean_h, log2_sum = sums.results(count)
        ctx.save_for_backward(rows, keys, positive, tau)
        ctx.kept = mean_h, log2_sum, count, row_ids, key_ids
        ctx.ring, ctx.limit = ring, limit
        ctx.mark_non_differentiable(mean_h, count)
        return log_mean, mean_h, count

    @staticmethod
    @once_differentiable('negative_terms')
    def backward(ctx, grad, *_):
        rows, keys, positive, tau = ctx.saved_tensors
        mean_h, log2_sum, count, row_ids, key_ids = ctx.kept
        # Without negatives log g is a constant.
        grad = torch.where(count > 0, grad, 0)
        log2_sum = torch.where(count > 0, log2_sum, 0)
        per_anchor = grad / tau
        sums, of_rows, of_keys = ExpSums(positive, tau), torch.zeros_like(rows), []
        with torch.autocast(rows.device.type, enabled=False):
            blocks = ctx.ring.blocks_and_gradients(of_keys, keys, key_ids)
            for (block, block_ids), of_block in blocks:
                same = SameSample(row_ids, block_ids)
                for part, strip, own in _strips(rows, block, same, ctx.limit):
                    weights = sums.weights(strip, part, 1, own, log2_sum, per_anchor)
                    of_rows[part].addmm_(weights, block)
                    of_block.addmm_(weights.t(), rows[part])
        # The weights of an anchor add up to 1.
        of_tau = -grad * mean_h / tau.square()
        return of_rows, *of_keys, -per_anchor, of_tau, None, None, None, None


def _strips(rows, keys, same: SameSample, limit: int):
    """Rows of a strip, its similarities, and the entries that are not negatives there."""
    if len(keys):
        for part, _ in similarity_strips(len(rows), len(keys), rows.size(1), False, limit):
            yield part, rows[part] @ keys.t(), same.inside(part, 0, len(keys))
