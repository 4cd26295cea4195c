"""Mean of values weighted by their own softmax."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def _weights(values, mask, temperature, peak):
    """``exp((values - peak)/temperature)``, 0 where masked out."""
    weight = ((values - peak) / temperature).exp_()
    return weight if mask is None else weight.masked_fill_(~mask, 0)


class _SoftmaxMean(Function):
    @staticmethod
    def forward(ctx, values, mask, temperature, group):
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        least = torch.finfo(wide.dtype).min
        if values.size(1) == 0:
            peak = wide.new_full((values.size(0), 1), least)
        else:
            # Of a negative temperature the smallest value has the peak.
            signed = wide if temperature > 0 else -wide
            if mask is not None:
                signed = signed.masked_fill(~mask, least)
            peak = signed.max(1, keepdim=True).values
        if group is not None:
            dist.all_reduce(peak, dist.ReduceOp.MAX, group=group)
        peak = peak if temperature > 0 else -peak
        weight = _weights(wide, mask, temperature, peak)
        total = weight.sum(1, dtype=torch.float64)
        moment = (weight * wide).sum(1, dtype=torch.float64)
        if group is not None:
            both = torch.stack([total, moment])
            dist.all_reduce(both, group=group)
            total, moment = both
        mean = torch.where(total == 0, 0, moment / total.clamp(min=1e-300))
        ctx.temperature = temperature
        ctx.save_for_backward(values, mask, peak, total, mean)
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        values, mask, peak, total, mean = ctx.saved_tensors
        wide = values.to(peak.dtype)
        weight = _weights(wide, mask, ctx.temperature, peak)
        scale = torch.where(total == 0, 0, grad / total.clamp(min=1e-300))
        slope = (wide - mean.unsqueeze(1)) / ctx.temperature + 1
        out = weight * slope * scale.unsqueeze(1)
        return out.to(values.dtype), None, None, None


def softmax_mean(
    values: Tensor,
    temperature: float,
    *,
    mask: Tensor | None = None,
    group=None,
) -> Tensor:
    """``sum_j q_j v_j`` with ``q = softmax(v / temperature)`` per list.

    Tends to the mean for a large temperature, to the maximum as it falls to
    0 from above and to the minimum as it rises to 0 from below.

    Args:
        values: (L, N) floats.
        temperature: Not 0; in units of the values.
        mask: (L, N) bool, False for what does not count. None: all do.
        group: Process group over which the values are spread: every rank
            receives the mean over all of them and the gradient of its own.

    Returns:
        (L,) float64, 0 for a list without values; differentiable once, the
        weights q included.

    Raises:
        ValueError: If ``temperature`` is 0 or ``values`` is not 2-D.
    """
    if temperature == 0:
        raise ValueError('temperature must not be 0')
    if values.dim() != 2:
        raise ValueError(
            f'values must be (lists, values), got shape {tuple(values.shape)}'
        )
    return _SoftmaxMean.apply(values, mask, temperature, group)
