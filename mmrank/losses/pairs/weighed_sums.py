"""Sums of a surrogate over pairs, each times a weight that is a constant."""

from collections.abc import Callable, Iterator
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import is_compiling, on_host, once_differentiable

from .pair_sums import SCORE_LIMIT, Surrogate, clamp_infinite

# Pairs of a block, each a float64, and pairs up to which the slopes are kept for backward.
_BLOCK, _CACHED_BLOCK, _KEPT = 2**20, 2**15, 2**22
#: New (L, p, N) weights of the pairs with (L, p, N) losses; (L, p, 1) is known of each positive.
Weigh = Callable[[Tensor, Tensor], Tensor]


class _Pairs:
    """Blocks of the (L, P, N) losses of pairs, their weights and weighed slopes, in float64."""

    def __init__(self, surrogate: Surrogate, weigh: Weigh) -> None:
        self.surrogate, self.weigh = surrogate, weigh

    def blocks(self, pos, neg, neg_mask, known) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """Yield columns of the positives, losses, weights and slopes."""
        (lists, width), length = pos.shape, neg.size(1)
        pos, neg = (clamp_infinite(x.double()) for x in (pos, neg))
        # Far below, where the loss is 0: what is left out may be NaN.
        neg = neg.masked_fill(~neg_mask, -SCORE_LIMIT)
        most = _CACHED_BLOCK if on_host(pos) else _BLOCK
        step = max(most // max(lists * length, 1), 1)
        for begin in range(0, width, step):
            part = slice(begin, min(begin + step, width))
            pairs = pos[:, part, None] - neg[:, None]
            slopes = torch.empty_like(pairs)
            value = cast(Tensor, self.surrogate.terms(pairs, True, slopes))
            value = value * self.surrogate.value_factor
            weight = self.weigh(value, known[:, part, None]).mul_(neg_mask[:, None])
            yield part, value, weight, slopes.mul_(weight).mul_(self.surrogate.slope_factor)


class _WeighedSums(Function):
    @staticmethod
    def forward(ctx, pos, neg, neg_mask, known, pairs, group):
        sums = torch.zeros(3, *pos.shape, dtype=torch.float64, device=pos.device)
        keeps = not is_compiling() and pos.numel() * neg.size(1) <= _KEPT
        kept = []
        for part, value, weight, slope in pairs.blocks(pos, neg, neg_mask, known):
            sums[0, :, part] = weight.sum(2)
            sums[1, :, part] = torch.linalg.vecdot(weight, value)
            sums[2, :, part] = slope.sum(2)
            if keeps:
                kept.append(slope)
        if group is not None:
            # Sums over negatives add up over the ranks that hold them.
            dist.all_reduce(sums, group=group)
        weights, losses, slopes = sums
        ctx.pairs = pairs
        ctx.save_for_backward(pos, neg, neg_mask, known, slopes.clone(), *kept)
        ctx.mark_non_differentiable(weights)
        return losses.clone(), weights

    @staticmethod
    @once_differentiable('weighed_sums')
    def backward(ctx, grad, _):
        pos, neg, neg_mask, known, slopes, *kept = ctx.saved_tensors
        own = torch.zeros(neg.shape, dtype=torch.float64, device=neg.device)
        begin = 0
        if not kept:
            kept = (x[3] for x in ctx.pairs.blocks(pos, neg, neg_mask, known))
        for slope in kept:
            part = slice(begin, begin + slope.size(1))
            own -= torch.bmm(grad[:, None, part], slope)[:, 0]
            begin = part.stop
        return (grad * slopes).to(pos.dtype), own.to(neg.dtype), None, None, None, None


def weighed_sums(lists, surrogate: Surrogate, weigh: Weigh, known: Tensor) -> tuple[Tensor, Tensor]:
    """``sum_j w_ij l(s_i - t_j)`` and ``sum_j w_ij`` for every positive of L lists.

    Args:
        lists: :class:`mmrank.losses.RankedLists`; with a ``group`` the sums are over the negatives
            of all ranks.
        surrogate: The pair surrogate l.
        weigh: The weights, of blocks of losses and of what is known of their positives. No gradient
            goes through it.
        known: (L, P) float64.

    Returns:
        Two (L, P) float64 sums, of which the first is differentiable once, in the scores; at
        padding any finite number. Infinite scores act as +-1e30.
    """
    # A tensor that is two arguments of a Function is traced wrong (torch 2.12).
    return _WeighedSums.apply(
        torch.where(lists.pos_mask, lists.pos, 0),
        lists.scores,
        lists.is_negative,
        known.detach(),
        _Pairs(surrogate, weigh),
        lists.group,
    )
