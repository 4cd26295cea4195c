"""Lists of different lengths joined over ranks, gradients included."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class _GatherColumns(Function):
    @staticmethod
    def forward(ctx, own, group):
        ctx.rank, ctx.width = dist.get_rank(group), own.size(1)
        parts = [
            torch.empty_like(own) for _ in range(dist.get_world_size(group))
        ]
        dist.all_gather(parts, own.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        begin = ctx.rank * ctx.width
        return grad[:, begin : begin + ctx.width], None


def all_gather_lists(
    values: Tensor, mask: Tensor, group
) -> tuple[Tensor, Tensor]:
    """Join the padded lists of all ranks.

    Every rank is expected to compute one and the same function of the result,
    so the gradient of a rank's own slice is already the whole one and is not
    summed over ranks.

    Args:
        values: (L, P_r) floats, P_r may differ by rank, also be 0.
        mask: (L, P_r) bool, False for padding.
        group: Process group.

    Returns:
        (L, W * max P) values and mask, the same on all ranks.
    """
    width = torch.tensor(values.size(1), device=values.device)
    dist.all_reduce(width, dist.ReduceOp.MAX, group=group)
    missing = int(width) - values.size(1)
    values = torch.nn.functional.pad(values, (0, missing))
    mask = torch.nn.functional.pad(mask, (0, missing))
    joined_mask = _GatherColumns.apply(mask.to(torch.uint8), group)
    return _GatherColumns.apply(values, group), joined_mask.bool()


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

    DistributedDataParallel averages gradients over ranks. A loss that every
    rank computes of the joined batch has its gradient split over the ranks,
    not repeated, so it has to be summed: scale by the world size.
    """
    return _ScaleGradient.apply(values, factor)
