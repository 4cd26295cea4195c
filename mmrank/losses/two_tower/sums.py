"""Sums of a loss over pairs of embeddings that keep no matrix of all scores."""

import torch
from torch import Tensor

from mmrank.autograd import Function, can_sync, once_differentiable
from mmrank.tensors import column_blocks

from .pointwise import Pointwise, SquarePointwise

#: Rows and columns of a block; its scores fit into a core's own cache.
BLOCK_SIZE = 512
#: Pairs of a block; their rows fit into a core's own cache.
BLOCK_PAIRS = 1024


class _BlockedCrossSum(Function):
    @staticmethod
    def forward(ctx, left, right, left_weights, right_weights, loss):
        wanted = any(ctx.needs_input_grad[:2])
        total = torch.zeros((), dtype=torch.float64, device=left.device)
        # The weights go to the embeddings, which are fewer than the scores.
        weighted_left = left * left_weights[:, None]
        weighted_right = right * right_weights[:, None]
        grads = [torch.zeros_like(x) for x in (left, right) if wanted]
        for rows in column_blocks(len(left), BLOCK_SIZE):
            for cols in column_blocks(len(right), BLOCK_SIZE):
                scores = left[rows] @ right[cols].t()
                if wanted:
                    losses, slope = loss.negative_and_slope(scores)
                    grads[0][rows].addmm_(slope, weighted_right[cols])
                    grads[1][cols].addmm_(slope.t(), weighted_left[rows])
                else:
                    losses = loss.negative(scores)
                total += left_weights[rows] @ (losses @ right_weights[cols])
        if wanted:
            grads[0] *= left_weights[:, None]
            grads[1] *= right_weights[:, None]
            ctx.save_for_backward(left, right, *grads)
        return total.to(left.dtype)

    @staticmethod
    @once_differentiable('weighted_cross_sum')
    def backward(ctx, grad):
        *_, grad_left, grad_right = ctx.saved_tensors
        return grad * grad_left, grad * grad_right, None, None, None


def weighted_cross_sum(
    left: Tensor, right: Tensor, left_weights: Tensor, right_weights: Tensor, pointwise: Pointwise
) -> Tensor:
    """``sum_u sum_v x_u y_v l-(<left_u, right_v>)``, no (U, V) matrix kept; 0 if U or V is 0.

    The square loss costs O((U + V) D^2): it is half the inner product of the two weighted Gram
    matrices. Any other loss is computed in blocks, forward and gradient in one go, and is
    differentiable once. The weights, (U,) x and (V,) y, have no gradient.
    """
    if isinstance(pointwise, SquarePointwise):
        gram = (left * left_weights[:, None]).t() @ left
        other = (right * right_weights[:, None]).t() @ right
        return 0.5 * (gram * other).sum()
    return _BlockedCrossSum.apply(left, right, left_weights, right_weights, pointwise)


class _PairScores(Function):
    @staticmethod
    def forward(ctx, left, right, left_index, right_index):
        ctx.save_for_backward(left, right, left_index, right_index)
        scores = left.new_empty(len(left_index))
        for block in column_blocks(len(left_index), BLOCK_PAIRS):
            rows = left.index_select(0, left_index[block])
            rows *= right.index_select(0, right_index[block])
            torch.sum(rows, dim=1, out=scores[block])
        return scores

    @staticmethod
    @once_differentiable('pair_scores')
    def backward(ctx, grad):
        left, right, left_index, right_index = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_left = (left, left_index)
        of_right = (right, right_index)
        grad_left = _added_to_rows(of_left, of_right, grad) if wanted[0] else None
        grad_right = _added_to_rows(of_right, of_left, grad) if wanted[1] else None
        return grad_left, grad_right, None, None


def _added_to_rows(side, other, grad: Tensor) -> Tensor:
    """Gradient of the embeddings of one side: what each pair adds to its row."""
    rows, index = side
    others, other_index = other
    if can_sync(grad):
        # A sparse matrix times a dense one takes half the time of index_add, but makes the host
        # wait. Indices are checked by the callers; set here, PyTorch does not warn.
        places = torch.stack([index, other_index])
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            matrix = torch.sparse_coo_tensor(places, grad, (len(rows), len(others)))
        return torch.sparse.mm(matrix, others)
    out = torch.zeros_like(rows)
    for block in column_blocks(len(index), BLOCK_PAIRS):
        part = others.index_select(0, other_index[block]) * grad[block, None]
        out.index_add_(0, index[block], part)
    return out


def pair_scores(left: Tensor, right: Tensor, left_index: Tensor, right_index: Tensor) -> Tensor:
    """(B,) scores ``<left[a_p], right[b_p]>`` of many pairs p, differentiable once.

    Neither the gathered rows of all pairs nor their products are kept: the memory beyond the (U, D)
    and (V, D) embeddings is a block and one number a pair.
    """
    return _PairScores.apply(left, right, left_index, right_index)
