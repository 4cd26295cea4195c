"""FlatCLR as a registered loss."""

from mmrank.registry import MODELS

from .info_nce_loss import InfoNCELoss


@MODELS.register_module()
class FlatCLRLoss(InfoNCELoss):
    """FlatNCE: each anchor's gradient keeps its size when the anchor is easy.

    The paper's loss is ``S / sg[S]`` with ``S = sum_z exp(h(z)/tau)`` over
    the negatives, h as in :class:`ISogCLRLoss`: its value is always 1. The
    value here is ``log S``, which has the same gradient and shows what is
    learnt. It is below 0 once the positive outweighs all negatives. Source:
    Chen et al., Simpler, Faster, Stronger: Breaking The log-K Curse On
    Contrastive Learners With FlatNCE, 2021.

    Args:
        tau: Temperature > 0.
        bimodal: See :class:`InfoNCELoss`.
        normalize: Give embeddings length 1, so that similarities are cosines.
        scope: ``global``: negatives from all ranks. ``local``: from this one.
        loss_weight: Factor of the whole loss.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        tau: float = 0.5,
        bimodal: bool = False,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(
            tau,
            bimodal,
            positive_in_denominator=False,
            normalize=normalize,
            scope=scope,
            loss_weight=loss_weight,
        )
