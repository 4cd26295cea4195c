"""Mean pointwise loss of pairs whose labels are known."""

import torch
from torch import Tensor

from mmrank.tensors import check_tensors

from .pair_embeddings import check_widths, common_dtype, embedding_index
from .pointwise import Pointwise, build_pointwise


def labelled_pair_loss(
    left: Tensor,
    right: Tensor,
    is_positive: Tensor,
    left_index: Tensor,
    right_index: Tensor,
    pointwise: str | Pointwise = 'square',
) -> Tensor:
    """Loss (8) of naive and of cross sampling: ``mean l(Y_ij, s_ij)``.

    Source: "in-batch bias of two-tower models", sections 2.1 and 3.2. Over pairs, or rows and
    columns, that are drawn uniformly its expectation is the full objective (5). Over ranks it is a
    mean, so the ranks' equal shares of a batch return what a single process returns.

    **Half precision.** See :class:`mmrank.losses.InBatchLoss`.

    Args:
        left: (U, D) embeddings.
        right: (V, D) embeddings.
        is_positive: (B,) bool, one for each pair of the (B,) indices; or (R, C), for all
            combinations of (R,) left and (C,) right ones.
        left_index: Rows of ``left`` that make pairs.
        right_index: Rows of ``right``.
        pointwise: ``square``, ``logistic``, or a :class:`mmrank.functional.Pointwise`.

    Returns:
        Scalar >= 0.

    Example:
        >>> order = torch.arange(2)
        >>> labelled_pair_loss(torch.eye(2), torch.eye(2), torch.eye(2) > 0, order, order)
        tensor(0.)
    """
    check_tensors(left=left, right=right, is_positive=is_positive)
    loss = build_pointwise(pointwise)
    sizes = len(left_index), len(right_index)
    paired = is_positive.dim() == 1 and sizes[0] == sizes[1]
    expected = sizes[:1] if paired else sizes
    if is_positive.shape != expected or not is_positive.numel():
        raise ValueError(
            f'is_positive must be {expected} to fit the pairs, and not '
            f'empty, got {tuple(is_positive.shape)}'
        )
    if is_positive.dtype != torch.bool:
        raise TypeError(
            f'is_positive must be bool, got {is_positive.dtype}; compare the labels: labels > 0'
        )
    left_rows = embedding_index('left', left, left_index, sizes[0])
    right_rows = embedding_index('right', right, right_index, sizes[1])
    check_widths(left, right)
    dtype = common_dtype(left, right)
    left = left.to(dtype).index_select(0, left_rows)
    right = right.to(dtype).index_select(0, right_rows)
    with torch.autocast(left.device.type, enabled=False):
        scores = (left * right).sum(1) if paired else left @ right.t()
        return torch.where(is_positive, loss.positive(scores), loss.negative(scores)).mean()
