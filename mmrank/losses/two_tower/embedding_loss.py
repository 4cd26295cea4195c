"""Losses of in-batch sampling without the matrix of all scores."""

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.distributed import agreed_dtype, all_gather_rows, dtype_flags, scale_gradient
from mmrank.state.pair_counts import check_columns, check_counts, check_entities, check_pairs

from .coefficients import in_batch_coefficients
from .cross_sum import BLOCK_SIZE, weighted_cross_sum
from .loss import check_samples, check_second_sample, diagonal_sum, first_sample, pair_weights
from .pair_scores import pair_scores
from .pointwise import Pointwise, build_pointwise


def in_batch_embedding_loss(
    left: Tensor,
    right: Tensor,
    rows: Tensor,
    cols: Tensor,
    row_counts: Tensor,
    col_counts: Tensor,
    num_positives: int,
    *,
    mode: str,
    omega: float = 1.0,
    pointwise: str | Pointwise = 'square',
    shape: tuple[int, int],
    left_index: Tensor | None = None,
    right_index: Tensor | None = None,
    block_size: int = BLOCK_SIZE,
    group=None,
) -> Tensor:
    """Loss of a batch of positive pairs, from the embeddings.

    The value of :func:`in_batch_loss` on ``left @ right.t()``. The square
    loss costs O(B D^2), others are computed in blocks; see
    :func:`weighted_cross_sum`.

    An entity that occurs in many pairs needs to be embedded, and multiplied, only once: pass each
    distinct entity once and index them by ``left_index`` and ``right_index``, one entry per pair.
    With all pairs of a data set
    as the batch this is the full objective in O(m n D) or less.

    Args:
        left: (B, D) floats, or (U, D) with ``left_index``.
        right: (B, D), or (V, D) with ``right_index``.
        rows: See :func:`in_batch_loss`.
        cols: See there; (B1 + B2,) for ``sogram`` with (B1,) ``rows``.
        row_counts: See there.
        col_counts: See there.
        num_positives: See there.
        mode: See there.
        omega: See there.
        pointwise: See there.
        shape: See there.
        left_index: (B,) integers in ``[0, U)``. None: pair p has row p.
        right_index: (B,) integers in ``[0, V)``. None: pair q has row q.
        block_size: See :func:`weighted_cross_sum`.
        group: Process group whose ranks hold parts of one batch, of any
            sizes, also 0. The value is that of the joined batch on every
            rank. The gradient is W times this rank's part of it, so that DistributedDataParallel's
            mean over the ranks is the joined batch's; every rank must run backward. None: one
            process.

    Returns:
        Scalar of the embeddings' dtype, at least float32.

    Raises:
        TypeError: See :func:`in_batch_loss`.
        ValueError: See there; or embeddings that do not fit the pairs.
    """
    first = first_sample(mode, len(rows), len(cols))
    start = first if mode == 'sogram' else 0
    left_index = _index('left', left, left_index, len(rows))
    right_index = _index('right', right, right_index, len(cols))
    if left.size(1) != right.size(1):
        raise ValueError(
            f'left and right embeddings must have one width, got {left.size(1)} and {right.size(1)}'
        )
    check_samples(rows, cols, first, mode, shape)
    check_counts('row_counts', row_counts, shape[0])
    check_counts('col_counts', col_counts, shape[1])
    check_second_sample(cols[start:], col_counts, mode)
    pointwise = build_pointwise(pointwise)
    sizes = [[first, len(cols) - start, len(right)]]
    dtype = torch.promote_types(left.dtype, right.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    if group is not None:
        sizes, dtype = _sizes_by_rank(sizes[0], dtype, group, left.device)
        counts = [x[0] for x in sizes]
        _check_joined(rows[:first], cols[:first], counts, shape, group)
        if mode == 'sogram':
            counts = [x[1] for x in sizes]
            second = all_gather_rows(cols[start:, None].long(), counts, group)
            check_columns(second[:, 0], col_counts, 'the second sample of all ranks')
    total, second, _ = (sum(column) for column in zip(*sizes))
    form = in_batch_coefficients(mode, omega, total, num_positives, shape, second)

    left, right = left.to(dtype), right.to(dtype)
    if group is not None:
        size = dist.get_world_size(group)
        left, right = scale_gradient(left, size), scale_gradient(right, size)
    x = pair_weights(rows, row_counts, form.by_counts, dtype)[:first]
    y = pair_weights(cols, col_counts, form.by_counts, dtype)
    left_index, mine = left_index[:first], right_index[:first]
    with torch.autocast(left.device.type, enabled=False):
        scores = pair_scores(left, right, left_index, mine)
        diagonal = diagonal_sum(scores, form.offset + form.slope * x * y[:first], pointwise)
        x = _sum_by_index(x, left_index, len(left))
        y = _sum_by_index(y[start:], right_index[start:], len(right))
        if group is not None:
            joined = torch.cat([right, y[:, None]], dim=1)
            joined = all_gather_rows(joined, [x[2] for x in sizes], group)
            right, y = joined[:, :-1], joined[:, -1].detach()
        cross = weighted_cross_sum(left, right, x, y, pointwise, block_size)
    loss = form.scale * (diagonal + form.cross * cross)
    if group is None:
        return loss
    joined = loss.detach().clone()
    dist.all_reduce(joined, group=group)
    return loss + (joined - loss).detach()


def _index(name: str, embeddings: Tensor, index, num_pairs: int) -> Tensor:
    """Where each pair finds its embedding, checked."""
    if embeddings.dim() != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f'{name} must be a matrix of floats, got '
            f'{tuple(embeddings.shape)} of {embeddings.dtype}'
        )
    if index is None:
        if len(embeddings) != num_pairs:
            raise ValueError(
                f'{name} has {len(embeddings)} embeddings for {num_pairs} '
                f'pairs; with one for each distinct entity pass {name}_index'
            )
        return torch.arange(num_pairs, device=embeddings.device)
    if index.shape != (num_pairs,):
        raise ValueError(
            f'{name}_index must be ({num_pairs},), one for each pair, got {tuple(index.shape)}'
        )
    check_entities(f'{name}_index', index, len(embeddings))
    return index.long()


def _sum_by_index(weights: Tensor, index: Tensor, size: int) -> Tensor:
    return weights.new_zeros(size).index_add_(0, index, weights)


def _sizes_by_rank(
    own: list[int], dtype: torch.dtype, group, device
) -> tuple[list[list[int]], torch.dtype]:
    """Some sizes of every rank, and one dtype; the host waits for them."""
    said = torch.tensor([*own, *dtype_flags(dtype)], device=device)
    sizes = said.new_zeros(dist.get_world_size(group), len(said))
    sizes[dist.get_rank(group)] = said
    dist.all_reduce(sizes, group=group)
    rows = sizes.tolist()
    flags = [max(column) for column in [*zip(*rows)][len(own) :]]
    return [row[: len(own)] for row in rows], agreed_dtype(flags, dtype)


def _check_joined(rows, cols, counts, shape, group) -> None:
    """Refuse ranks that sampled on their own, not parts of one sample."""
    pairs = torch.stack([rows, cols], dim=1).long()
    pairs = all_gather_rows(pairs, counts, group)
    check_pairs(*pairs.unbind(1), shape, 'the batch of all ranks')
