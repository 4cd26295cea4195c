"""Pair surrogates by the matrix of all pairs, in blocks."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .pairwise_tables import clamp_infinite
from .score_binning import column_blocks
from .surrogates import Surrogate

# Pairs of one block of the pair matrix, each a float64: 32 MiB a temporary.
_PAIRS_PER_BLOCK = 2**22


class PairMatrix:
    """Any surrogate, over blocks of the (L, P, N) pair matrix in float64."""

    def __init__(self, surrogate: Surrogate) -> None:
        self.surrogate = surrogate

    @staticmethod
    def _blocks(
        pos: Tensor, neg: Tensor, neg_mask: Tensor | None
    ) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
        """Yield columns, their score differences and what counts of them."""
        pos = clamp_infinite(pos.double()).unsqueeze(2)
        size = max(_PAIRS_PER_BLOCK // max(pos.numel(), 1), 1)
        for part in column_blocks(neg.size(1), size):
            x = pos - clamp_infinite(neg[:, part].double()).unsqueeze(1)
            keep = None if neg_mask is None else neg_mask[:, None, part]
            yield part, x, keep

    def sums(
        self,
        pos: Tensor,
        pos_mask: Tensor,
        neg: Tensor,
        neg_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, tuple]:
        """Sums, their slopes by ``pos`` and what the gradient will need."""
        total = torch.zeros_like(pos, dtype=torch.float64)
        slope = torch.zeros_like(total)
        for _, x, keep in self._blocks(pos, neg, neg_mask):
            value, change = self.surrogate(x), self.surrogate.derivative(x)
            if keep is not None:
                value = torch.where(keep, value, 0)
                change = torch.where(keep, change, 0)
            total += value.sum(2)
            slope += change.sum(2)
        return total, slope, (pos, neg_mask)

    def gradient_of_negatives(
        self, grad: Tensor, neg: Tensor, pos: Tensor, neg_mask: Tensor | None
    ) -> Tensor:
        """Gradient by ``neg`` from that of the sums, in its dtype."""
        out = torch.empty_like(neg, memory_format=torch.contiguous_format)
        for part, x, keep in self._blocks(pos, neg, neg_mask):
            change = self.surrogate.derivative(x).neg_()
            if keep is not None:
                change = torch.where(keep, change, 0)
            out[:, part] = torch.einsum('lp,lpn->ln', grad, change)
        return out
