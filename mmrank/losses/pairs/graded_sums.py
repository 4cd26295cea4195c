"""Sums of a surrogate over pairs of positives of different relevance."""

import torch
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import once_differentiable

from .pair_sums import Surrogate, clamp_infinite
from .tables import column_blocks

# Pairs of positives of one block, each a float64.
_PAIRS_PER_BLOCK = 2**20


@torch.no_grad()
def graded_mass(grade: Tensor, mask: Tensor) -> Tensor:
    """(L, P) float64 ``sum_k (u_i - u_k)_+`` of (L, P) relevances u, 0 at padding."""
    ordered, order = torch.where(mask, grade.double(), torch.inf).sort(1)
    number = torch.arange(ordered.size(1), device=grade.device)
    # Summed over the gaps, so that equal relevances have exactly 0; inf - inf is that of padding.
    mass = ordered.diff(dim=1, prepend=ordered[:, :1]).mul_(number).cumsum(1)
    return torch.where(mask, torch.empty_like(mass).scatter_(1, order, mass), 0)


class _GradedPairSum(Function):
    @staticmethod
    def forward(ctx, pos, mask, grade, weight, surrogate):
        scores = clamp_infinite(torch.where(mask, pos, 0).double())
        grade = grade.double()
        better = torch.where(mask, grade, 0).unsqueeze(2)
        worse = torch.where(mask, grade, torch.inf).unsqueeze(1)
        total, slope = scores.new_zeros(len(pos)), torch.zeros_like(scores)
        rows = max(_PAIRS_PER_BLOCK // max(pos.numel(), 1), 1)
        for part in column_blocks(pos.size(1), rows):
            pairs = (better[:, part] - worse).clamp_(min=0).mul_(weight[:, part].unsqueeze(2))
            x = scores[:, part].unsqueeze(2) - scores.unsqueeze(1)
            change = torch.empty_like(x)
            total += surrogate.terms(x, True, change).mul_(pairs).sum((1, 2))
            change *= pairs
            slope[:, part] += change.sum(2)
            slope -= change.sum(1)
        ctx.save_for_backward(pos, slope.mul_(surrogate.slope_factor))
        return total.mul_(surrogate.value_factor)

    @staticmethod
    @once_differentiable('graded_pair_sum')
    def backward(ctx, grad):
        pos, slope = ctx.saved_tensors
        return (grad.unsqueeze(1) * slope).to(pos.dtype), None, None, None, None


def graded_pair_sum(
    pos: Tensor, mask: Tensor, grade: Tensor, weight: Tensor, surrogate: Surrogate
) -> Tensor:
    """(L,) float64 ``sum_i w_i sum_k (u_i - u_k)_+ l(s_i - s_k)`` over the positives of L lists.

    Differentiable once, in the (L, P) scores ``pos`` alone. ``grade`` and ``weight`` are (L, P)
    relevances u and weights w, ``mask`` is False for padding. The matrix of pairs is made in blocks
    of rows.
    """
    return _GradedPairSum.apply(pos, mask, grade, weight, surrogate)
