"""Cross-correlation of the columns of two views."""

import torch
from torch import Tensor

from .off_diagonal import off_diagonal_square_sum


def cross_correlation_terms(
    view1: Tensor, view2: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """How far the cross-correlation matrix of two views is from the identity.

    Columns are standardised over the batch, as batch norm does it. Source:
    Zbontar et al., Barlow Twins, ICML 2021, eq. 1 and 2. The (D, D) matrix is
    not formed where the batch is smaller than D.

    Args:
        view1: (B, D) embeddings, B >= 2.
        view2: (B, D) embeddings of the same samples.
        eps: Added to the variance before the root.

    Returns:
        ``sum_a (1 - C_aa)^2`` and ``sum_{a != b} C_ab^2``, at least float32.

    Raises:
        ValueError: If shapes do not fit.
    """
    if view1.dim() != 2 or view1.shape != view2.shape or view1.size(0) < 2:
        raise ValueError(
            'a correlation needs two views of at least 2 samples, got shapes '
            f'{tuple(view1.shape)} and {tuple(view2.shape)}'
        )
    dtype = torch.promote_types(view1.dtype, torch.float32)
    n = view1.size(0)
    with torch.autocast(view1.device.type, enabled=False):
        x, y = (_standardised(v.to(dtype), eps) for v in (view1, view2))
        own = (x * y).sum(0) / n
        return (1 - own).square().sum(), off_diagonal_square_sum(x, y) / n**2


def _standardised(view: Tensor, eps: float) -> Tensor:
    centred = view - view.mean(0)
    return centred / (view.var(0, correction=0) + eps).sqrt()
