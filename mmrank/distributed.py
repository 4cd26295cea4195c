"""The group of all ranks, sums and means over it; :mod:`mmrank.gathering` joins their rows."""

import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import Function, once_differentiable


def world_group():
    """The group of all ranks, or None in a single process."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return dist.group.WORLD
    return None


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process has only a part of a tensor: a ``DTensor``."""
    return hasattr(tensor, 'full_tensor')  # an older torch has no such class


class _AllReduceSum(Function):
    @staticmethod
    def forward(ctx, own, group):
        total = own.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @once_differentiable('all_reduce_sum')
    def backward(ctx, grad):
        return grad, None


def all_reduce_sum(own: Tensor, group) -> Tensor:
    """Add up over ranks; ``own`` itself where ``group`` is None.

    Every rank computes one and the same function of the result, so the gradient of a rank's own
    part is already the whole one and is not summed over ranks.
    """
    return own if group is None else _AllReduceSum.apply(own, group)


def mean_over_ranks(losses: Tensor, rows: int, group) -> Tensor:
    """Mean of the (n_r,) losses of all ranks over ``rows``, 0 without rows; for DDP.

    Each rank has the losses of its own rows, and DistributedDataParallel averages the gradients, so
    the loss of a rank is multiplied by their number.
    """
    total = losses.sum()
    if group is not None:
        value = total.detach().clone()
        dist.all_reduce(value, group=group)
        total = value + dist.get_world_size(group) * (total - total.detach())
    return total / max(rows, 1)


class _ScaleGradient(Function):
    @staticmethod
    def forward(ctx, values, factor):
        ctx.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def scale_gradient(values: Tensor, factor: float) -> Tensor:
    """Identity whose gradient is multiplied by ``factor``.

    DistributedDataParallel averages gradients over ranks. A loss that every rank computes of the
    joined batch has its gradient split over the ranks, so it has to be summed: scale by the world
    size.
    """
    return _ScaleGradient.apply(values, factor)
