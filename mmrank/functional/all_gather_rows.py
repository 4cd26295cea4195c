"""Rows of all ranks, where each rank goes on differently with them."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad


def rows_by_rank(own: int, group, device=None) -> list[int]:
    """Ask every rank how many rows it has.

    Args:
        own: Rows of this rank.
        group: Process group.
        device: Device that the group communicates on.

    Returns:
        Rows of each rank. The host waits for the answer.
    """
    counts = torch.zeros(
        dist.get_world_size(group), dtype=torch.long, device=device
    )
    counts[dist.get_rank(group)] = own
    dist.all_reduce(counts, group=group)
    return counts.tolist()


class _GatherRows(Function):
    @staticmethod
    def forward(ctx, own, counts, group):
        ctx.counts, ctx.group = counts, group
        missing = max(counts) - own.size(0)
        padded = pad(own, (0, 0, 0, missing)).contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=group)
        return torch.cat([x[:n] for x, n in zip(parts, counts)])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad.split(ctx.counts)[dist.get_rank(ctx.group)], None, None


def all_gather_rows(own: Tensor, counts: list[int], group) -> Tensor:
    """Join the rows of all ranks; the gradient is summed over ranks.

    Every rank computes a part of one sum from the result, such as the scores
    of all queries against its own gallery, so the gradient of a row is the
    sum of what the ranks say. Every rank must run backward.

    Args:
        own: (n_r, D) rows of this rank; n_r may differ by rank, also be 0.
        counts: n_r of each rank, see :func:`rows_by_rank`.
        group: Process group.

    Returns:
        (sum n_r, D), those of rank 0 first; the same on all ranks.
    """
    return _GatherRows.apply(own, counts, group)
