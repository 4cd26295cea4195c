"""Mean exp over the similarities of anchors and keys that come in a ring."""

import torch
from torch.autograd import Function

from mmrank.autograd import once_differentiable

from .log_mean_exp import ExpSums, SameSample, similarity_strips


class RingLogMeanExp(Function):
    """``log mean exp(h/tau)`` of anchors over the keys of all ranks.

    Called as ``apply(rows, keys, positive, tau, row_ids, key_ids, ring, limit)``, with ``positive``
    (n,) the similarity of each row and its positive. Returns also the mean of h and the number of
    negatives, both without gradient, as :class:`~.log_mean_exp.LogMeanExp` does for gathered keys.
    A similarity is computed for each of its sides, and again in backward, for which the keys travel
    once more.
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
        mean_h = torch.where(count > 0, sums.mean_h(), 0)
        log_mean = sums.log_sum() - count.clamp(min=1).log()
        log2_sum = torch.where(count > 0, sums.best + sums.total.log2(), 0)
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
        per_anchor = grad / tau
        sums, of_rows = ExpSums(positive, tau), torch.zeros_like(rows)
        with torch.autocast(rows.device.type, enabled=False):
            blocks = ctx.ring.blocks_and_gradients(keys, key_ids)
            for (block, block_ids), of_block in blocks:
                same = SameSample(row_ids, block_ids)
                for part, strip, own in _strips(rows, block, same, ctx.limit):
                    weights = sums.weights(strip, part, 1, own, log2_sum, per_anchor)
                    of_rows[part].addmm_(weights, block)
                    of_block.addmm_(weights.t(), rows[part])
        # The weights of an anchor add up to 1.
        of_tau = -grad * mean_h / tau.square()
        of_keys = ctx.ring.gradient
        return of_rows, of_keys, -per_anchor, of_tau, None, None, None, None


def _strips(rows, keys, same: SameSample, limit: int):
    """Rows of a strip, its similarities, and what is no negative there."""
    if not len(keys):
        return
    for part, _ in similarity_strips(len(rows), len(keys), rows.size(1), False, limit):
        yield part, rows[part] @ keys.t(), same.inside(part, 0, len(keys))
