"""SigLIP: each pair of an image and a text is judged by itself."""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrank.autograd import Function, once_differentiable
from mmrank.settings import check_positive
from mmrank.tensors import at_least_float32

from .base import ContrastedBatch, ContrastiveLoss, scalar_parameter
from .terms import label_mates, negative_strips, number_samples, weighted_sum


class _NegativeSums(Function):
    """``sum_z w_z softplus(t <a, z> + b)`` over negatives z of each anchor a, in strips of rows."""

    @staticmethod
    def forward(ctx, rows, keys, scale, bias, numbers, weight):
        ctx.save_for_backward(rows, keys, scale, bias)
        ctx.numbers = numbers
        ctx.weight = weight
        sums = rows.new_zeros(len(rows))
        for part, _, scores, _ in negative_strips(rows, keys, numbers):
            # softplus of torch is rounded above 20.
            sums[part] -= weighted_sum(logsigmoid(-scale * scores - bias), 1, weight)
        return sums

    @staticmethod
    @once_differentiable('SigLIPLoss')
    def backward(ctx, grad):
        rows, keys, scale, bias = ctx.saved_tensors
        of_rows = torch.zeros_like(rows)
        of_keys = torch.zeros_like(keys)
        of_scale = torch.zeros_like(scale)
        of_bias = torch.zeros_like(bias)
        for part, _, scores, _ in negative_strips(rows, keys, ctx.numbers):
            slope = (scale * scores + bias).sigmoid_().mul_(grad[part, None])
            if ctx.weight is not None:
                slope *= ctx.weight
            of_scale += (slope * scores).sum()
            of_bias += slope.sum()
            slope *= scale
            of_rows[part].addmm_(slope, keys)
            of_keys.addmm_(slope.t(), rows[part])
        return of_rows, of_keys, of_scale, of_bias, None, None


class SigLIPLoss(ContrastiveLoss):
    """Sigmoid loss of images and texts: a pair is judged by itself.

    ``softplus(-t <x_i, y_i> - b) + sum_j softplus(t <x_i, y_j> + b)`` over the second views ``y_j``
    of all other samples, the mean over i. There is no softmax: a pair does not compete with the
    others, and a sample without negatives still has the loss of its own pair. b starts at -10, as
    nearly all pairs of a batch are negative. Give ``loss.parameters()`` to the optimiser, too.
    Source: Zhai et al., Sigmoid Loss for Language Image Pre-Training, ICCV 2023, section 3.2.

    Args:
        tau: Temperature ``1/t`` at the start; the paper takes 0.1.
        learnable: Learn both: ``log_scale``, log t, and ``logit_bias`` are (1,) parameters, to be
            spared by weight decay (``paramwise_cfg=dict(custom_keys={'log_scale':
            dict(decay_mult=0), 'logit_bias': dict(decay_mult=0)})``).

    Example:
        >>> rows = torch.eye(2)
        >>> round(float(SigLIPLoss()(rows, rows)), 4)
        0.6932
    """

    takes_labels = True
    start_bias = -10.0
    log_scale: Tensor | None
    logit_bias: Tensor | None

    def __init__(self, tau: float = 0.1, learnable: bool = True, **kwargs) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau)
        if not learnable:
            self.tau = float(tau)
        for name, start in (('log_scale', -math.log(tau)), ('logit_bias', self.start_bias)):
            self.register_parameter(name, scalar_parameter(start) if learnable else None)

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        images, texts = (at_least_float32(x) for x in batch.local.views)
        keys = at_least_float32(batch.gathered.views[1])
        if self.log_scale is None or self.logit_bias is None:
            scale = 1 / self.tau
            bias = self.start_bias
        else:
            scale = self.learnt('log_scale').exp().view(())
            bias = self.learnt('logit_bias').view(())
            self.diagnostics |= {'tau': 1 / scale.detach(), 'bias': bias.detach().clone()}
        scale = torch.as_tensor(scale, dtype=images.dtype, device=images.device)
        bias = torch.as_tensor(bias, dtype=images.dtype, device=images.device)
        numbers, _ = number_samples(batch.local.ids, batch.gathered.ids)
        weight = batch.gathered.weight
        weight = None if weight is None else weight.to(images)
        with torch.autocast(images.device.type, enabled=False):
            positive = logsigmoid(scale * (images * texts).sum(1) + bias)
            losses = _NegativeSums.apply(images, keys, scale, bias, numbers, weight) - positive
            if batch.local.labels is None:
                return losses
            # softplus(-x) = softplus(x) - x for each other positive.
            sums, count = label_mates(keys, batch.local, batch.gathered)
            return losses - scale * (images * sums).sum(1) - bias * count
