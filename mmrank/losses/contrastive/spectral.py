"""The spectral contrastive loss."""

import torch
from torch import Tensor

from mmrank.tensors import as_divisor, at_least_float32, unit_rows

from .base import ContrastedBatch, ContrastiveLoss
from .terms import weighted_sum


class SpectralContrastiveLoss(ContrastiveLoss):
    """Contrastive loss whose minimum factorises the graph of augmentations.

    ``-2 <a, a+> + mean_z <a, z>^2`` over ``mu``, with the second views z of all other samples.
    Embeddings longer than ``sqrt(mu)`` are shortened to it, and others left as they are, as in the
    authors' code, with ``mu = 1``. Source: HaoChen et al., Provable Guarantees for Self-Supervised
    Deep Learning with Spectral Contrastive Loss, NeurIPS 2021.
    """

    mu = 1.0

    def normalized(self, view: Tensor) -> Tensor:
        """(n, D) rows of a length of at most ``sqrt(mu)``, in at least float32."""
        view = at_least_float32(view)
        longest = self.mu**0.5
        length = torch.linalg.vector_norm(view.detach(), dim=1, keepdim=True)
        return torch.where(length > longest, longest * unit_rows(view), view)

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        view1, view2 = batch.local.views
        with torch.autocast(view1.device.type, enabled=False):
            others = batch.gathered
            is_negative = batch.local.ids[:, None] != others.ids
            squares = (view1 @ others.views[1].t()).square()
            count = weighted_sum(is_negative, 1, others.weight)
            total = weighted_sum(torch.where(is_negative, squares, 0), 1, others.weight)
            negative = total / as_divisor(count)
            losses = (negative - 2 * (view1 * view2).sum(1)) / self.mu
        return torch.where(count > 0, losses, losses * 0)
