"""The negatives of each row of a batch, and mean exp(h/tau) over them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import normalize

from mmrank.functional.second_order import once_differentiable


def unit_rows(x: Tensor) -> Tensor:
    """Divide each row by its Euclidean length.

    Args:
        x: (n, D) floats. A row of 1e-30 or 1e30, whose squares leave the
            range of float32, has a length like any other.

    Returns:
        (n, D), at least float32: in half precision close cosines tie. A row
        of zeros stays zero and has no gradient. A row of entries below 8e-34
        (2e-303 in float64) counts as one: its gradient, which is that of the
        direction divided by the length, would not be finite.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if not x.size(1):
        return x
    # The result does not depend on the scale, so the scale has no gradient.
    scale = x.detach().abs().amax(1, keepdim=True)
    zero = scale < 2**16 * torch.finfo(x.dtype).tiny
    return normalize(x.masked_fill(zero, 0) / torch.where(zero, 1, scale))


BLOCK_ENTRIES = 1 << 22


@dataclass
class NegativeTerms:
    """Inputs of a global contrastive loss for n anchors.

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
        keys and a ``tau`` that requires it, with
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
    @once_differentiable('negative_terms')
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


def two_view_terms(
    view1: Tensor,
    view2: Tensor,
    tau: Tensor | float,
    ids: Tensor | None = None,
    all_view1: Tensor | None = None,
    all_view2: Tensor | None = None,
    all_ids: Tensor | None = None,
) -> NegativeTerms:
    """Every view against both views of all other samples.

    Of B samples that differ each anchor has 2(B - 1) negatives. Source:
    iSogCLR (ICML 2023), eq. 11.

    Args:
        view1: (B, D) embeddings.
        view2: (B, D) embeddings of the same samples.
        tau: Temperature > 0: one, or (B,), one per sample.
        ids: (B,) integer samples. None: all rows differ.
        all_view1: (M, D) first views to draw the negatives from: those of
            all ranks. None: those of the batch.
        all_view2: (M, D), likewise.
        all_ids: (M,), likewise.

    Returns:
        Terms of 2B anchors, those of ``view1`` first.
    """
    ids, all_view1, all_view2, all_ids = _filled(
        view1, view2, ids, all_view1, all_view2, all_ids
    )
    if isinstance(tau, Tensor) and tau.dim():
        tau = tau.repeat(2)
    return negative_terms(
        torch.cat([view1, view2]),
        torch.cat([view2, view1]),
        torch.cat([all_view1, all_view2]),
        tau,
        ids.repeat(2),
        all_ids.repeat(2),
    )


def two_modality_terms(
    view1: Tensor,
    view2: Tensor,
    tau1: Tensor | float,
    tau2: Tensor | float,
    ids: Tensor | None = None,
    all_view1: Tensor | None = None,
    all_view2: Tensor | None = None,
    all_ids: Tensor | None = None,
) -> tuple[NegativeTerms, NegativeTerms]:
    """Each modality against the other one of all other pairs.

    Of B pairs that differ each anchor has B - 1 negatives. Source: iSogCLR
    (ICML 2023), eq. 15 and 16.

    Args:
        view1: (B, D) embeddings of one modality, such as images.
        view2: (B, D) embeddings of the other, such as texts.
        tau1: Temperature > 0 of the anchors in ``view1``: one, or (B,).
        tau2: That of the anchors in ``view2``.
        ids: (B,) integer pairs. None: all rows differ.
        all_view1: See :func:`two_view_terms`.
        all_view2: See :func:`two_view_terms`.
        all_ids: See :func:`two_view_terms`.

    Returns:
        Terms of the B anchors of ``view1`` and of ``view2``.
    """
    ids, all_view1, all_view2, all_ids = _filled(
        view1, view2, ids, all_view1, all_view2, all_ids
    )
    return (
        negative_terms(view1, view2, all_view2, tau1, ids, all_ids),
        negative_terms(view2, view1, all_view1, tau2, ids, all_ids),
    )


def _filled(view1, view2, ids, all_view1, all_view2, all_ids):
    if view1.dim() != 2 or view1.shape != view2.shape:
        raise ValueError(
            'view1 and view2 must be embeddings (samples, length) of the same '
            f'samples, got shapes {tuple(view1.shape)} and '
            f'{tuple(view2.shape)}'
        )
    given = [x is not None for x in (all_view1, all_view2)]
    if any(given) and not (all(given) and ids is not None):
        raise ValueError(
            'all_view1 and all_view2 go together, and with ids and all_ids'
        )
    if ids is None:
        ids = torch.arange(view1.size(0), device=view1.device)
    if not any(given):
        return ids, view1, view2, ids
    return ids, all_view1, all_view2, all_ids
