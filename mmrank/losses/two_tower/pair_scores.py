"""Inner products of pairs of rows, gathered a block at a time."""

import torch
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import once_differentiable

#: Pairs of a block; their rows fit into a core's own cache.
BLOCK_PAIRS = 1024


class _PairScores(Function):
    @staticmethod
    def forward(ctx, left, right, left_index, right_index, block):
        ctx.save_for_backward(left, right, left_index, right_index)
        scores = left.new_empty(len(left_index))
        for begin in range(0, len(left_index), block):
            own = slice(begin, begin + block)
            rows = left.index_select(0, left_index[own])
            rows *= right.index_select(0, right_index[own])
            torch.sum(rows, dim=1, out=scores[own])
        return scores

    @staticmethod
    @once_differentiable('pair_scores')
    def backward(ctx, grad):
        left, right, left_index, right_index = ctx.saved_tensors
        # A sparse matrix times a dense one: half the time of index_add. Indices are checked by the
        # callers; set here, PyTorch does not warn.
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            matrix = torch.sparse_coo_tensor(
                torch.stack([left_index, right_index]), grad, (len(left), len(right))
            )
        wanted = ctx.needs_input_grad
        grads = (
            torch.sparse.mm(matrix, right) if wanted[0] else None,
            torch.sparse.mm(matrix.t(), left) if wanted[1] else None,
        )
        return *grads, None, None, None


def pair_scores(
    left: Tensor,
    right: Tensor,
    left_index: Tensor,
    right_index: Tensor,
    block_size: int = BLOCK_PAIRS,
) -> Tensor:
    """``<left[a_p], right[b_p]>`` of many pairs p, differentiable once.

    Neither the gathered rows of all pairs nor their products are kept: the memory beyond the
    embeddings is a block and one number a pair.

    Args:
        left: (U, D) floats.
        right: (V, D), of the same dtype.
        left_index: (B,) int64 in ``[0, U)``.
        right_index: (B,) int64 in ``[0, V)``.
        block_size: Pairs that are gathered at a time.

    Returns:
        (B,) scores.
    """
    return _PairScores.apply(left, right, left_index, right_index, block_size)
