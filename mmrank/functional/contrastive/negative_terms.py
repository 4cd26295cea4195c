"""Mean of exp(h/tau) over the negatives of each anchor, in the log domain."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

BLOCK_ENTRIES = 1 << 22


@dataclass
class NegativeTerms:
    """What a global contrastive loss needs to know of n anchors.

    Attributes:
        log_mean: (n,) ``log g = log mean_z exp(h(z)/tau)``, differentiable;
            -inf for an anchor without negatives.
        mean_h: (n,) mean of h under the weights ``exp(h/tau)``, without
            gradient; 0 for an anchor without negatives.
        count: (n,) int64 number of negatives.
    """

    log_mean: Tensor
    mean_h: Tensor
    count: Tensor


def negative_terms(
    anchors: Tensor,
    positives: Tensor,
    keys: Tensor,
    tau: Tensor | float,
    anchor_ids: Tensor,
    key_ids: Tensor,
    block_entries: int = BLOCK_ENTRIES,
) -> NegativeTerms:
    """Compare anchors with their negatives.

    ``h(z) = <a, z> - <a, a+>`` and ``g = mean_z exp(h(z)/tau)`` over the keys
    z of other samples. Source: iSogCLR (ICML 2023), eq. 11, 15 and 16. No
    exponential is formed that is above 1, and the similarities are there in
    blocks of rows, in backward once more.

    Args:
        anchors: (n, D) floats a.
        positives: (n, D) the other view a+ of each.
        keys: (m, D) candidates z.
        tau: Temperature > 0: one, or (n,).
        anchor_ids: (n,) integer sample of each anchor.
        key_ids: (m,) integer sample of each key. Keys of the anchor's own
            sample are no negatives.
        block_entries: Similarities at a time.

    Returns:
        Terms in at least float32. The gradient reaches anchors, positives,
        keys and a ``tau`` that asks for it, with
        ``d log g/d tau = -mean_h/tau^2``.

    Raises:
        ValueError: If shapes do not fit.
    """
    n, m = anchors.size(0), keys.size(0)
    if (
        positives.shape != anchors.shape
        or keys.shape[1:] != anchors.shape[1:]
        or anchor_ids.shape != (n,)
        or key_ids.shape != (m,)
    ):
        raise ValueError(
            'anchors and positives must be (n, D), keys (m, D) and the ids '
            f'(n,) and (m,); got {tuple(anchors.shape)}, '
            f'{tuple(positives.shape)}, {tuple(keys.shape)}, '
            f'{tuple(anchor_ids.shape)} and {tuple(key_ids.shape)}'
        )
    dtype = torch.promote_types(anchors.dtype, torch.float32)
    anchors, positives, keys = (
        x.to(dtype) for x in (anchors, positives, keys)
    )
    tau = torch.as_tensor(tau, dtype=dtype, device=anchors.device).expand(n)
    # h/tau of 400 needs the full mantissa: no autocast here.
    with torch.autocast(anchors.device.type, enabled=False):
        positive = (anchors * positives).sum(1)
        return NegativeTerms(
            *_LogMeanExp.apply(
                anchors,
                keys,
                positive,
                tau,
                anchor_ids,
                key_ids,
                max(block_entries // max(m, 1), 1),
            )
        )


class _LogMeanExp(Function):
    @staticmethod
    def forward(ctx, anchors, keys, positive, tau, anchor_ids, key_ids, rows):
        log_sum, mean_h = torch.empty_like(positive), torch.empty_like(tau)
        count = torch.empty_like(anchor_ids, dtype=torch.long)
        inputs = (anchors, keys, positive, tau, anchor_ids, key_ids)
        for block in _blocks(anchors.size(0), rows):
            h, own = _centred(block, *inputs)
            count[block] = own.size(1) - own.sum(1)
            scaled = (h / tau[block, None]).masked_fill_(own, -torch.inf)
            log_sum[block] = _log_sum_exp(scaled)
            # exp(-inf - 0) = 0 where there is no negative.
            shift = torch.where(count[block] > 0, log_sum[block], 0)
            weights = scaled.sub_(shift[:, None]).exp_()
            mean_h[block] = (weights * h.masked_fill_(own, 0)).sum(1)
        ctx.save_for_backward(*inputs, log_sum, mean_h, count)
        ctx.rows = rows
        ctx.mark_non_differentiable(mean_h, count)
        return log_sum - count.clamp(min=1).log(), mean_h, count

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _mean_h, _count):
        *inputs, log_sum, mean_h, count = ctx.saved_tensors
        anchors, keys, positive, tau, *_ = inputs
        # Without negatives log g is a constant.
        grad = torch.where(count > 0, grad, 0)
        shift = torch.where(count > 0, log_sum, 0)
        grad_anchors = torch.empty_like(anchors)
        grad_keys = torch.zeros_like(keys)
        grad_positive = torch.empty_like(positive)
        with torch.autocast(anchors.device.type, enabled=False):
            for block in _blocks(anchors.size(0), ctx.rows):
                h, own = _centred(block, *inputs)
                scaled = h.div_(tau[block, None]).sub_(shift[block, None])
                weights = scaled.masked_fill_(own, -torch.inf).exp_()
                weights *= (grad[block] / tau[block])[:, None]
                grad_anchors[block] = weights @ keys
                grad_keys.addmm_(weights.t(), anchors[block])
                grad_positive[block] = -weights.sum(1)
        grad_tau = -grad * mean_h / tau.square()
        return (
            grad_anchors,
            grad_keys,
            grad_positive,
            grad_tau,
            None,
            None,
            None,
        )


def _blocks(n: int, rows: int) -> Iterator[slice]:
    return (slice(i, i + rows) for i in range(0, n, rows))


def _centred(block, anchors, keys, positive, _tau, anchor_ids, key_ids):
    """Centred similarities of a block, and which keys are of one sample."""
    h = (anchors[block] @ keys.t()).sub_(positive[block, None])
    return h, anchor_ids[block, None] == key_ids


def _log_sum_exp(x: Tensor) -> Tensor:
    if x.size(1) == 0:
        return x.new_full((x.size(0),), -torch.inf)
    return x.logsumexp(1)
