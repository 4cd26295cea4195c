"""Spectral contrastive loss."""

import torch
from torch import Tensor

from .unit_rows import unit_rows


def capped_rows(x: Tensor, mu: float) -> Tensor:
    """Shorten rows to a length of at most ``sqrt(mu)``.

    Args:
        x: (n, D) floats.
        mu: Largest squared length > 0.

    Returns:
        (n, D), at least float32; shorter rows as they are.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    length = mu**0.5
    too_long = torch.linalg.vector_norm(x.detach(), dim=1, keepdim=True)
    return torch.where(too_long > length, length * unit_rows(x), x)


def spectral_losses(
    view1: Tensor, view2: Tensor, all_view2: Tensor, ids: Tensor, all_ids: Tensor
) -> Tensor:
    """Spectral contrastive loss of each sample.

    ``-2 <a, a+> + mean_z <a, z>^2`` over the second views z of all other samples. Source: HaoChen
    et al., Provable Guarantees for Self-Supervised Deep Learning with Spectral Contrastive Loss,
    NeurIPS 2021.

    Args:
        view1: (n, D) embeddings a, float32 or float64.
        view2: (n, D) the other view a+ of each.
        all_view2: (m, D) candidates z.
        ids: (n,) integer samples.
        all_ids: (m,) integer samples of the candidates.

    Returns:
        (n,) losses, 0 for a sample without negatives.
    """
    with torch.autocast(view1.device.type, enabled=False):
        others = ids[:, None] != all_ids
        count = others.sum(1)
        squares = (view1 @ all_view2.t()).square()
        negative = torch.where(others, squares, 0).sum(1) / count.clamp(min=1)
        loss = negative - 2 * (view1 * view2).sum(1)
    return torch.where(count > 0, loss, loss * 0)
