"""CyCLIP's loss as a registered loss."""

from torch import Tensor

from mmrank.functional.contrastive.cyclic_consistency import cyclic_consistency
from mmrank.registry import MODELS

from .clip_loss import CLIPLoss
from .contrasted_batch import ContrastedBatch


@MODELS.register_module()
class CyCLIPLoss(CLIPLoss):
    """CLIP's loss and two that make the similarities consistent.

    The similarity of an image and another pair's text should be that of the
    swapped text and image, and that of two images that of their texts.
    Source: Goel et al., CyCLIP: Cyclic Contrastive Language-Image
    Pretraining, NeurIPS 2022.

    Args:
        cross_weight: Weight of the consistency across modalities.
        in_weight: Weight of that within modalities; the paper has 0.25 for
            both.
        **kwargs: As for :class:`CLIPLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self, cross_weight: float = 0.25, in_weight: float = 0.25, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (
            ('cross_weight', cross_weight),
            ('in_weight', in_weight),
        ):
            if not value >= 0:
                raise ValueError(f'{name} must be >= 0, got {value!r}')
        self.cross_weight, self.in_weight = cross_weight, in_weight

    def row_losses(
        self, batch: ContrastedBatch, sample_idx: Tensor | None, group
    ) -> Tensor:
        """CLIP's loss and the weighted inconsistency of each sample."""
        cross, within = cyclic_consistency(
            batch.view1, batch.view2, batch.all_view1, batch.all_view2
        )
        self.diagnostics |= {
            'cross_inconsistency': cross.detach().sum() / max(len(cross), 1),
            'in_inconsistency': within.detach().sum() / max(len(within), 1),
        }
        return (
            super().row_losses(batch, sample_idx, group)
            + self.cross_weight * cross
            + self.in_weight * within
        )
