"""Sums of the squared hinge over pairs, each times a weight that is a constant.

``l = max(0, 1 - x/margin)^2`` of x, a positive's score minus a negative's score.
:class:`TiltedSum` has weights ``exp(l/lam)`` and makes the matrix of pairs, in blocks.
:class:`ThresholdedSum` has the weight 1 for losses above a threshold of the positive, which are the
losses of its highest negatives: it sorts them. All in float64.
"""

import math
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import Function, can_sync, is_compiling, once_differentiable
from mmrank.tensors import SCORE_LIMIT, clamp_infinite, column_blocks

# Pairs of a block, each a float64, and pairs up to which the slopes are kept for backward.
_BLOCK = 2**20
_CACHED_BLOCK = 2**17
_KEPT = 2**22


class Buffers:
    """Memory that all blocks share, so that it stays in the cache."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def like(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Uninitialised memory of the shape of ``values``."""
        size = values.numel()
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size:
            memory = self._memory[name] = torch.empty(size, dtype=dtype, device=values.device)
        return memory[:size].view(values.shape)

    def copy(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        return self.like(name, values, dtype).copy_(values)


class TiltedSum:
    """Weights ``exp(l/lam - m)``, with m the largest ``l/lam`` of a positive."""

    def __init__(self, margin: float, lam: float) -> None:
        self.margin = margin
        self.lam = lam

    def _parts(self, pos: Tensor, neg: Tensor) -> Iterator[tuple[slice, slice]]:
        most = _CACHED_BLOCK if can_sync(pos) else _BLOCK
        lists, width = neg.shape
        length = max(min(most // max(lists, 1), width), 1)
        for columns in column_blocks(width, length):
            for rows in column_blocks(pos.size(1), max(most // max(lists * length, 1), 1)):
                yield rows, columns

    def _roots(self, differences: Tensor) -> Tensor:
        """Roots of ``l/lam``, from differences of scores over ``margin lam^(1/2)``."""
        return differences.add_(self.lam**-0.5).clamp_(min=0)

    def _pairs(self, pos: Tensor, neg: Tensor, most: Tensor, buffers: Buffers) -> list[Tensor]:
        """(L, p, n) roots and weights."""
        pos = pos.unsqueeze(2)
        neg = neg.unsqueeze(1)
        shape = pos.expand(-1, -1, neg.size(2))
        y = buffers.like('roots', shape, pos.dtype)
        weight = buffers.like('weights', shape, pos.dtype)
        self._roots(torch.sub(neg, pos, out=y))
        # Not fused: the largest is to be exactly 0.
        return [y, torch.mul(y, y, out=weight).sub_(most.unsqueeze(2)).exp_()]

    def sums(self, pos: Tensor, neg: Tensor, neg_mask: Tensor, group) -> tuple[Tensor, tuple]:
        """(3, L, P) sums of weights, losses and slopes by ``pos``, and what the gradient needs."""
        scale = 1 / (self.margin * self.lam**0.5)
        dtype = torch.promote_types(neg.dtype, torch.float32)
        pos = clamp_infinite(pos.double()).mul_(scale)
        neg = clamp_infinite(neg.double()).mul_(scale)
        # Far below all; what is left out may be NaN.
        neg = torch.where(neg_mask, neg, -3 * scale * SCORE_LIMIT)
        top = neg.amax(1, keepdim=True) if neg.size(1) else neg.new_full((len(neg), 1), -math.inf)
        if group is not None:
            dist.all_reduce(top, dist.ReduceOp.MAX, group=group)
        most = self._roots(top - pos).square_()
        sums = pos.new_zeros(3, *pos.shape)
        counted = neg_mask.double().unsqueeze(2)
        kept = []
        if not is_compiling() and pos.numel() * neg.size(1) <= _KEPT:
            kept.append(pos.new_empty(*pos.shape, neg.size(1), dtype=dtype))
        buffers = Buffers()
        for rows, columns in self._parts(pos, neg):
            y, weight = self._pairs(pos[:, rows], neg[:, columns], most[:, rows], buffers)
            sums[0, :, rows] += torch.bmm(weight, counted[:, columns]).squeeze(2)
            weight *= y
            both = torch.bmm(weight.flatten(0, 1).unsqueeze(1), y.flatten(0, 1).unsqueeze(2))
            sums[1, :, rows] += both.view(y.shape[:2])
            sums[2, :, rows] += weight.sum(2)
            if kept:
                kept[0][:, rows, columns] = weight
        sums[1] *= self.lam
        sums[2] *= -2 * self.lam * scale
        return sums, (pos, neg, most, *kept)

    def gradient(self, grad: Tensor, pos: Tensor, neg: Tensor, most: Tensor, *kept) -> Tensor:
        """(L, N) gradient by the negatives from the (L, P) one of the sums of losses."""
        out = torch.zeros_like(neg)
        buffers = Buffers()
        grad = grad.unsqueeze(1) * (2 * self.lam**0.5 / self.margin)
        if kept:
            return torch.bmm(grad.to(kept[0]), kept[0]).squeeze(1)
        for rows, columns in self._parts(pos, neg):
            y, weight = self._pairs(pos[:, rows], neg[:, columns], most[:, rows], buffers)
            out[:, columns] += torch.bmm(grad[..., rows], weight.mul_(y)).squeeze(1)
        return out


class ThresholdedSum:
    """Weight 1 for the losses above (L, P) ``thresholds``, 0 for the others."""

    def __init__(self, margin: float, thresholds: Tensor) -> None:
        self.margin = margin
        self.thresholds = thresholds.detach()

    def sums(self, pos: Tensor, neg: Tensor, neg_mask: Tensor, group) -> tuple[Tensor, tuple]:
        """See :class:`TiltedSum`."""
        pos = clamp_infinite(pos.double())
        neg = torch.where(neg_mask, clamp_infinite(neg.double()), -math.inf)
        if can_sync(neg):
            # Faster than the sort of torch.
            order = torch.from_numpy(neg.neg().numpy().argsort(1))
        else:
            order = neg.argsort(1, descending=True)
        neg = neg.gather(1, order)
        cut = pos + self.margin * (self.thresholds.clamp(min=0).sqrt() - 1)
        number = torch.searchsorted(neg.neg(), -cut)
        neg = neg.masked_fill_(neg == -math.inf, 0)
        # The mean of the first k negatives and the sum of the squares around it, which grows by
        # positive terms: no difference of large sums.
        k = torch.arange(1, neg.size(1) + 1, dtype=neg.dtype, device=neg.device)
        mean = neg.cumsum(1) / k
        growth = (neg[:, 1:] - mean[:, :-1]).square_().mul_(1 - 1 / k[1:])
        spread = pad(growth, (2, 0)).cumsum(1).gather(1, number)
        hinge = 1 + (pad(mean, (1, 0)).gather(1, number) - pos) / self.margin
        total = number * hinge
        # NaN gives NaN, wherever it stands.
        losses = total * hinge + spread / self.margin**2 + 0 * neg.sum(1, keepdim=True)
        number_above = torch.where(self.thresholds < 0, neg_mask.sum(1, keepdim=True), number)
        sums = torch.stack([number_above.to(losses), losses, -2 / self.margin * total])
        return sums, (pos, neg, order, number)

    def gradient(
        self, grad: Tensor, pos: Tensor, neg: Tensor, order: Tensor, number: Tensor
    ) -> Tensor:
        """See :class:`TiltedSum`."""
        grad = grad * (2 / self.margin**2)
        # Of each negative the positives that count it: those that count more than are above it.
        own = torch.stack([grad, grad * pos])
        sums = own.new_zeros(2, len(neg), neg.size(1) + 1)
        sums.scatter_add_(2, number.expand_as(own), own)
        weight, scores = sums.flip(2).cumsum(2).flip(2)[..., 1:]
        return torch.empty_like(neg).scatter_(1, order, weight * (self.margin + neg) - scores)


class _WeightedSum(Function):
    @staticmethod
    def forward(ctx, pos, neg, neg_mask, kind, group):
        sums, extra = kind.sums(pos, neg, neg_mask, group)
        if group is not None:
            # Sums over negatives add up over the ranks that hold them.
            dist.all_reduce(sums, group=group)
        weights, losses, slopes = sums.unbind()
        ctx.kind = kind
        ctx.save_for_backward(pos, neg, slopes.clone(), *extra)
        # A tensor that leaves by another way than this is traced wrong.
        found = losses.clone(), weights.clone(), extra[2].clone()
        ctx.mark_non_differentiable(*found[1:])
        return found

    @staticmethod
    @once_differentiable('weighted_sums')
    def backward(ctx, grad, *_):
        pos, neg, slopes, *extra = ctx.saved_tensors
        own = ctx.kind.gradient(grad, *extra)
        return (grad * slopes).to(pos.dtype), own.to(neg.dtype), None, None, None


def weighted_sums(lists, kind: TiltedSum | ThresholdedSum) -> tuple[Tensor, ...]:
    """``sum_j w_ij l(s_i - t_j)`` and ``sum_j w_ij`` for every positive of L lists.

    Args:
        lists: :class:`mmrank.losses.RankedLists`; with a ``group`` the sums are over the negatives
            of all ranks.
        kind: The weights. No gradient goes through them.

    Returns:
        Two (L, P) float64 sums, of which the first is differentiable once, in the scores; at
        padding any finite number. Infinite scores act as +-1e30. Third, m of :class:`TiltedSum`.
    """
    # A tensor that is two arguments of a Function is traced wrong (torch 2.12).
    pos = torch.where(lists.pos_mask, lists.pos, 0)
    return _WeightedSum.apply(pos, lists.scores, lists.is_negative, kind, lists.group)
