"""The spectral contrastive loss as a registered loss."""

from torch import Tensor

from mmrank.losses.contrastive.spectral_contrastive import capped_rows, spectral_losses

from .contrastive_loss import ContrastedBatch, ContrastiveLoss


class SpectralContrastiveLoss(ContrastiveLoss):
    """Contrastive loss whose minimum factorises the graph of augmentations.

    ``(-2 <a, a+> + mean_z <a, z>^2) / mu``, see
    :func:`mmrank.functional.spectral_losses`. Embeddings are not normalised: those longer than
    ``sqrt(mu)`` are shortened to it, as in the authors' code. Source: HaoChen et al., Provable
    Guarantees for Self-Supervised Deep Learning with Spectral Contrastive Loss, NeurIPS 2021.

    Args:
        mu: Largest squared length of an embedding, > 0.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(self, mu: float = 1.0, scope: str = 'global', loss_weight: float = 1.0) -> None:
        super().__init__(normalize=False, scope=scope, loss_weight=loss_weight)
        if not mu > 0:
            raise ValueError(f'mu must be > 0, got {mu!r}')
        self.mu = float(mu)

    def embedded(self, view: Tensor) -> Tensor:
        """Rows of a length of at most ``sqrt(mu)``."""
        return capped_rows(view, self.mu)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Loss of each sample, its first view the anchor."""
        losses = spectral_losses(
            batch.view1, batch.view2, batch.all_view2, batch.ids, batch.all_ids
        )
        return losses / self.mu
