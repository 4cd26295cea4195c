"""The group of all ranks; sums, means, rows and lists of all of them, with gradients.

A collective of tensors whose dtypes differ by rank, such as scores in half precision on some of
them, ends the process. The ranks agree on a dtype in the collective that they need for the sizes
anyway.
"""

from collections.abc import Sequence
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import Function, once_differentiable
from mmrank.errors import UserError

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def world_group():
    """The group of all ranks, or None in a single process."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return dist.group.WORLD
    return None


def training_group(loss):
    """The group of all ranks while ``loss`` trains, else None.

    In eval mode a loss is of a rank's own batch, as SyncBatchNorm is: a validation on one rank must
    not wait for the others.
    """
    return world_group() if loss.training else None


def joined_group(loss):
    """The group whose batches ``loss`` joins: all ranks in training with ``scope='global'``."""
    return training_group(loss) if loss.scope == 'global' else None


class _AllReduceSum(Function):
    @staticmethod
    def forward(ctx, part, group):
        total = part.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @once_differentiable('all_reduce_sum')
    def backward(ctx, grad):
        return grad, None


def all_reduce_sum(part: Tensor, group) -> Tensor:
    """Add up over ranks; the ``part`` itself where ``group`` is None.

    Every rank computes one and the same function of the result, so the gradient of a rank's own
    part is already the whole one and is not summed over ranks.
    """
    return part if group is None else _AllReduceSum.apply(part, group)


def mean_over_ranks(losses: Tensor, rows: int | Tensor, group) -> Tensor:
    """Mean of the (n_r,) losses of all ranks over ``rows``, 0 without rows; for DDP.

    Each rank has the losses of its own rows, and DistributedDataParallel averages the gradients, so
    the loss of a rank is multiplied by their number. ``rows`` may be a () sum of weights.
    """
    total = losses.sum()
    if group is not None:
        value = total.detach().clone()
        dist.all_reduce(value, group=group)
        total = value + dist.get_world_size(group) * (total - total.detach())
    return total / (rows + (rows == 0))


def scale_gradient(values: Tensor, factor: float) -> Tensor:
    """Identity whose gradient is multiplied by ``factor``.

    DistributedDataParallel averages gradients over ranks. A loss that every rank computes of the
    joined batch has its gradient split over the ranks, so it has to be summed: scale by the world
    size.
    """
    scaled = values.view_as(values)
    if scaled.requires_grad:
        scaled.register_hook(lambda grad: grad * factor)
    return scaled


class _MeanGradient(Function):
    @staticmethod
    def forward(ctx, parameter, group):
        ctx.group = group
        return parameter.view_as(parameter)

    @staticmethod
    @once_differentiable('mean_gradient')
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad / dist.get_world_size(ctx.group), None


def mean_gradient(parameter: Tensor, group) -> Tensor:
    """Identity whose gradient is the mean over ranks; ``parameter`` itself without a group.

    A loss may be outside of the module that DistributedDataParallel wraps, and its parameters would
    differ by rank. Where it is inside, the mean of equal gradients changes nothing.
    """
    return parameter if group is None else _MeanGradient.apply(parameter, group)


def _dtype_flags(dtype: torch.dtype) -> list[int]:
    """Name a float dtype in integers that a collective can add up, for :func:`_agreed_dtype`."""
    return [int(x == dtype) for x in _FLOATS]


def _agreed_dtype(flags: list[int], default: torch.dtype) -> torch.dtype:
    """Dtype that all ranks can convert to exactly, by the sum of flags; or ``default``."""
    dtypes = [x for x, flag in zip(_FLOATS, flags) if flag]
    return reduce(torch.promote_types, dtypes, dtypes[0] if dtypes else default)


def _bits(rows: Tensor) -> Tensor:
    """The float32 bits of rows, as integers: NaN equals NaN."""
    return rows.detach().float().contiguous().view(torch.int32)


def sizes_and_dtype(
    counts: Sequence[int], dtype: torch.dtype, group, device, rows: Tensor | None = None
) -> tuple[list[list[int]], torch.dtype]:
    """The sizes of each rank, and the dtype to convert to before a collective. The host waits.

    Raises:
        UserError: Where all ranks have the same (n, D) ``rows``, which are of images or texts.
    """
    number = len(counts)
    size = dist.get_world_size(group)
    rank = dist.get_rank(group)
    local_sizes = [0] * (size * number + size) + _dtype_flags(dtype)
    local_sizes[rank * number : (rank + 1) * number] = counts
    joined = torch.tensor(local_sizes, device=device)
    if rows is not None:
        joined[size * number + rank] = _bits(rows).sum()
    dist.all_reduce(joined, group=group)
    joined = joined.tolist()
    sizes = [joined[i * number : (i + 1) * number] for i in range(size)]
    sums = joined[size * number : size * number + size]
    if rows is not None and len(rows) and len({*sums}) == 1:
        bits = _bits(rows)
        if not (bits == bits[0]).all():  # all are equal where a network is dead
            raise UserError(
                f"scope='global' with the same {len(rows)} embeddings on every rank: they would "
                'meet their own copies. They were gathered before, or the sampler gives each rank '
                "the same samples. Fix: the rank's own embeddings; scope='local' for gathered "
                'ones; a DistributedSampler'
            )
    return sizes, _agreed_dtype(joined[size * number + size :], dtype)


def join(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """``torch.cat``, which refuses float16 under autocast to bfloat16."""
    with torch.autocast(parts[0].device.type, enabled=False):
        return torch.cat(parts, dim)


class _GatherRows(Function):
    @staticmethod
    def forward(ctx, rows, counts, group):
        ctx.counts = counts
        ctx.group = group
        padded = pad(rows, (0, 0, 0, max(counts) - rows.size(0))).contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=group)
        return join([x[:n] for x, n in zip(parts, counts)])

    @staticmethod
    @once_differentiable('all_gather_rows')
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad.split(ctx.counts)[dist.get_rank(ctx.group)], None, None


def all_gather_rows(rows: Tensor, counts: Sequence[int], group) -> Tensor:
    """Join the (n_r, D) rows of all ranks, ``counts`` of each, in their order.

    Every rank computes a part of one sum from the result, such as the scores of all queries against
    its own gallery, so the gradient of a row is the sum over the ranks. Every rank must run
    backward.
    """
    return _GatherRows.apply(rows, counts, group)


def all_labelled_rows(
    rows: Tensor, numbers: Tensor, group
) -> tuple[Tensor, Tensor, list[int], int]:
    """Join (n_r, D) rows, and (n_r, K) integers of each, as :func:`all_gather_rows` does.

    Returns:
        Rows, numbers, how many rows each rank has, and where the rows of this rank begin.
    """
    own = [len(rows), numbers.size(1)]
    sizes, dtype = sizes_and_dtype(own, rows.dtype, group, rows.device, rows)
    counts = [size for size, _ in sizes]
    if not len(rows):
        # A rank without images cannot tell the levels of their labels.
        numbers = numbers.new_zeros(0, max(width for _, width in sizes))
    joined = all_gather_rows(rows.to(dtype), counts, group)
    begin = sum(counts[: dist.get_rank(group)])
    return joined, all_gather_rows(numbers, counts, group), counts, begin


class _GatherColumns(Function):
    @staticmethod
    def forward(ctx, columns, group):
        ctx.rank = dist.get_rank(group)
        ctx.width = columns.size(1)
        parts = [torch.empty_like(columns) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, columns.contiguous(), group=group)
        return join(parts, dim=1)

    @staticmethod
    @once_differentiable('all_gather_lists')
    def backward(ctx, grad):
        begin = ctx.rank * ctx.width
        return grad[:, begin : begin + ctx.width], None


def all_gather_lists(
    values: Tensor, mask: Tensor, group, weight: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Join the padded (L, P_r) lists of all ranks; P_r, also 0, and the dtype may differ by rank.

    The gradient is as in :func:`all_reduce_sum`. The values may be (K * L, P_r), K for each entry,
    which counts ``weight`` times; None: once, also where other ranks have weights.

    Returns:
        (K * L, W * max P) values, mask and weights, the same on all ranks, in a dtype that can hold
        the values of all. The weights are None where no rank has any.
    """
    rows = values if weight is None else join([values, weight])
    numbers = [mask.size(1), int(weight is not None), *_dtype_flags(rows.dtype)]
    local_sizes = torch.tensor(numbers, device=values.device)
    dist.all_reduce(local_sizes, dist.ReduceOp.MAX, group=group)
    width, weighted, *flags = local_sizes.tolist()
    if weighted and weight is None:
        rows = join([values, mask.to(values.dtype)])
    missing = width - mask.size(1)
    rows = pad(rows.to(_agreed_dtype(flags, rows.dtype)), (0, missing))
    joined_mask = _GatherColumns.apply(pad(mask, (0, missing)).to(torch.uint8), group)
    joined = _GatherColumns.apply(rows, group)
    number = len(values)
    return joined[:number], joined_mask.bool(), joined[number:] if weighted else None
