"""SigLIP's loss as a registered loss."""

import math

import torch
from torch import Tensor, nn

from mmrank.losses.contrastive.sigmoid_contrastive import sigmoid_losses

from .contrastive_loss import ContrastedBatch, ContrastiveLoss


class SigLIPLoss(ContrastiveLoss):
    """Sigmoid loss of images and texts: a pair is judged by itself.

    ``softplus(-z_ij (t <x_i, y_j> + b))`` with ``z = 1`` for a pair and -1
    for all others, summed over texts and averaged over images. There is no softmax, so a pair does
    not compete with the others. Source: Zhai et al., Sigmoid Loss for Language Image Pre-Training,
    ICCV 2023.

    ``forward(images, texts, sample_idx)``, see :class:`ContrastiveLoss`. Rows of one sample are no
    negatives of each other; a sample without negatives still has the loss of its own pair. The
    texts of other ranks are never
    gathered: they pass from rank to rank
    (:class:`mmrank.functional.KeyRing`), as in the paper.

    Args:
        tau: Temperature ``1/t`` at the start; the paper takes 0.1.
        bias: b at the start; the paper takes -10, since nearly all pairs of
            a batch are negative.
        learnable: Learn both: the logarithm of t and b are parameters of the optimiser, to be
            spared by weight decay (``paramwise_cfg=dict(custom_keys={'log_scale':
            dict(decay_mult=0), 'logit_bias': dict(decay_mult=0)})``).

    Attributes:
        log_scale: () parameter, log t; or a buffer that is not saved.
        logit_bias: () parameter b, likewise.

    Raises:
        ValueError: On a parameter out of range.

    Example:
        >>> rows = torch.eye(2)
        >>> round(float(SigLIPLoss()(rows, rows)), 4)
        0.6932
    """

    def __init__(
        self,
        tau: float = 0.1,
        bias: float = -10.0,
        learnable: bool = True,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(
            normalize=normalize,
            scope=scope,
            loss_weight=loss_weight,
            gather='ring' if scope == 'global' else 'all',
        )
        if not 0 < tau < math.inf:
            raise ValueError(f'tau must be > 0 and finite, got {tau!r}')
        if not math.isfinite(bias):
            raise ValueError(f'bias must be finite, got {bias!r}')
        self.learnable = learnable
        for name, value in (('log_scale', -math.log(tau)), ('logit_bias', float(bias))):
            start = torch.tensor(value)
            if learnable:
                self.register_parameter(name, nn.Parameter(start))
            else:
                self.register_buffer(name, start, persistent=False)

    def extra_repr(self) -> str:
        return f'learnable={self.learnable}, loss_weight={self.loss_weight}'

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Loss of the image of each sample with all texts."""
        dtype = torch.promote_types(self.log_scale.dtype, torch.float32)
        scale = self.log_scale.to(dtype).exp()
        bias = self.logit_bias.to(dtype)
        losses = sigmoid_losses(batch.view1, batch.view2, scale, bias, batch.ids, batch.ring)
        self.diagnostics |= {'tau': 1 / scale.detach(), 'bias': bias.detach().clone()}
        return losses
