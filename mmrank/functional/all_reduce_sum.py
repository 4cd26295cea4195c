"""Sums over ranks, gradients included."""

import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class _AllReduceSum(Function):
    @staticmethod
    def forward(ctx, own, group):
        total = own.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad, None


def all_reduce_sum(own: Tensor, group) -> Tensor:
    """Add up over ranks.

    Every rank is expected to compute one and the same function of the result,
    so the gradient of a rank's own part is already the whole one and is not
    summed over ranks.

    Args:
        own: Floats of this rank, of one shape on all ranks.
        group: Process group, or None for a single process.

    Returns:
        The sum, the same on all ranks; ``own`` in a single process.
    """
    return own if group is None else _AllReduceSum.apply(own, group)
