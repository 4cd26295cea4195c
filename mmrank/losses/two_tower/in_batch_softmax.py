"""Softmax over the right entities of a batch, corrected by their shares of the batches."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import can_sync
from mmrank.distributed import join, mean_over_ranks, sizes_and_dtype, training_group
from mmrank.errors import UserError
from mmrank.losses.contrastive.info_nce import info_nce_losses
from mmrank.losses.contrastive.terms import Samples, label_mates, negative_terms
from mmrank.settings import check_positive, one_of
from mmrank.state.pair_counts import check_entities
from mmrank.tensors import check_index, zero_absent

from .base import PairBatch, TwoTowerLoss, common_dtype


def _in_batch_softmax_losses(
    left: Tensor,
    right: Samples,
    log_share: Tensor | None = None,
    tau: float = 1.0,
    refined: bool = False,
    counts: Sequence[int] = (),
    group=None,
) -> Tensor:
    """Loss of each pair, see :class:`InBatchSoftmaxLoss`; 0 for one without negatives.

    A factor of all shares cancels. The gradient of ``refined`` is the gradient of the paper's
    ``sg[1 - P_p] (log sum_q exp(f_q) / q' - f_p)``, P_p the softmax probability of the positive.
    Differentiable once.

    ``left`` are (B, D) embeddings of the pairs, ``right`` B + C samples of one view, whose ids are
    right entities: of the pairs, then of C further candidates, Yang et al., Mixed Negative
    Sampling, WWW 2020. Those with the label of a pair are positives of it. ``log_share`` are (B +
    C,) log q, ``counts`` the right entities of each rank of ``group``, which has one batch.
    """
    pairs, width = left.shape
    dtype = common_dtype(left, right.views[0])
    share = right.views[0].new_zeros(len(right.ids)) if log_share is None else log_share
    # Rows whose inner product is <left, right> / tau - log q, of the next multiple of 8 columns:
    # products of other widths take a quarter longer.
    more = 8 - width % 8
    ones = torch.eye(1, more, dtype=dtype, device=left.device).expand(pairs, -1)
    rows = join([left.to(dtype) / tau, ones], 1)
    minus_share = pad(-share[:, None].to(dtype), (0, more - 1))
    right_rows = join([right.views[0].to(dtype), minus_share], 1)
    labels = None if right.labels is None else right.labels[:pairs]
    anchors = Samples([rows], right.ids[:pairs], labels=labels)
    keys = replace(right, views=[right_rows])
    if group is not None:
        keys = keys.of_all_ranks(counts, group)
    positives = right_rows[:pairs]
    if refined:
        positives = pad(positives[:, :width], (0, positives.size(1) - width))
    terms = negative_terms(anchors, positives, keys, 1.0)
    if labels is not None:
        sums, mates = label_mates(keys.views[0], anchors, keys)
        similarities = (rows * positives).sum(1, keepdim=True).t()
        terms = terms.towards_positives(similarities, (rows * sums).sum(1), mates, 1.0)
    if refined and log_share is not None:
        rest = torch.log1p(-log_share[:pairs].to(rows.dtype).exp())
        # A mean over the negatives, where InfoNCE takes the sum.
        terms.log_mean = terms.log_mean + rest - terms.log_count
    return info_nce_losses(terms)


def _of_pairs(embeddings: Tensor, index: Tensor | None) -> Tensor:
    """(B, D) embeddings of the pairs, of the (B,) rows of an ``index``."""
    return embeddings if index is None else embeddings.index_select(0, index.long())


class InBatchSoftmaxLoss(TwoTowerLoss):
    """Softmax over the right entities of the batch, with the logQ correction.

    The usual loss of two-tower models, and a baseline of :class:`InBatchLoss`:

    ``-log exp(s_pp) / sum_q exp(s_pq)`` with ``s_pq = <left_p, right_q> / tau - log q_q``: a right
    entity is a negative in proportion to its share q of the candidates, so popular ones would be
    pushed away. Source: Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations, RecSys 2019, eq. 4 and 5, with all rewards 1. Other pairs of the own right
    entity are left out of the sum, unlike there: they would be negatives of themselves.

    ``cols`` may be (B + C,) with (B,) ``rows``: the last C are candidates of no pair, further
    negatives. The value is >= 0, still attached to the graph when no pair has a negative. A pair or
    candidate of a ``weight`` w counts as w of them, in sums, in the mean, and in the share of the
    pairs among the candidates. With ``labels`` the loss is the mean over the positives.

    Args:
        tau: Temperature of the inner products, > 0; the paper takes 0.05 for embeddings of length
            1.
        frequency: Where the shares of the right entities come from. ``counts``: of the training
            pairs, which ``mmrank.PairCountsHook`` or :meth:`set_pairs` sets; further candidates are
            taken for a uniform sample of the right entities. The paper estimates the shares while
            training. ``none``: no correction.
        refined: Correct the negatives only, as they alone are drawn from the others, with ``q' =
            q_q / (1 - q_p)``: ``-log exp(f_p) / (exp(f_p) + mean_q exp(f_q) / q')`` estimates the
            softmax over all right entities. Source: Khrylchenko et al., Correcting the LogQ
            Correction, RecSys 2025.

    Example:
        >>> loss = InBatchSoftmaxLoss(frequency='none')
        >>> pairs = torch.tensor([0, 1])
        >>> loss(torch.eye(2), torch.eye(2), pairs, pairs)
        tensor(0.3133)
    """

    takes_labels = True

    def __init__(
        self, tau: float = 1.0, frequency: str = 'counts', refined: bool = False, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        one_of('frequency', frequency, ('counts', 'none'))
        check_positive(tau=tau)
        if refined and frequency == 'none':
            raise UserError("refined=True needs shares. Fix: frequency='counts'")
        self.tau = float(tau)
        self.frequency = frequency
        self.refined = refined
        self.wants_pair_counts = frequency == 'counts'

    def check_takes_labels(self) -> None:
        if self.refined:
            what = 'refined=True corrects one positive of each pair, and labels= are of several'
            raise UserError(what, 'refined=False')

    def batch_loss(self, batch: PairBatch) -> Tensor:
        for name, ids in (('rows', batch.rows), ('cols', batch.cols)):
            check_index(name, ids, 2**62, 'one entity for each pair', shape=(len(ids),))
        left = _of_pairs(batch.left, batch.left_index)
        right = _of_pairs(batch.right, batch.right_index)
        if len(left) > len(right):
            what = f'cols must name the right entities of the {len(left)} pairs'
            raise ValueError(f'{what}, then further candidates or none, got {len(right)}')
        cols = batch.cols.to(left.device).long()
        labels = batch.labels
        weight = batch.weight
        world = training_group(self)
        sizes = [[len(left), len(right), int(weight is not None), int(labels is not None)]]
        if world is not None:
            dtype = torch.promote_types(left.dtype, right.dtype)
            rows = left if self.scope == 'global' else None
            sizes, dtype = sizes_and_dtype(sizes[0], dtype, world, left.device, rows)
            left = left.to(dtype)
            right = right.to(dtype)
        pairs, counts, weighted, labelled = zip(*sizes)
        group = world if self.scope == 'global' else None
        totals = sum(pairs), sum(counts)
        total = len(left) if group is None else totals[0]
        if any(labelled):
            labels = torch.full_like(cols, -1) if labels is None else labels
            labels = torch.where(labels < 0, -1 - cols, labels)
        if any(weighted):
            weight = torch.ones(len(cols), device=left.device) if weight is None else weight
            weight = weight.to(common_dtype(left, right))
            left, right = zero_absent(weight, (left, right))
            sums = torch.stack([weight[: len(left)].sum(), weight.sum()])
            totals = sums.clone()
            if world is not None:
                dist.all_reduce(totals, group=world)
            total = (sums if group is None else totals)[0]
            totals = totals.tolist() if can_sync(totals) else totals
        log_share = None
        if self.frequency == 'counts':
            drawn, every = totals
            every = every + (every == 0)
            check_entities('cols', cols, self.counts.shape[1])
            share = self.counts.col_counts[cols] / self.counts.num_positives
            share = share * drawn / every + (1 - drawn / every) / self.counts.shape[1]
            log_share = share.log()
        samples = Samples([right], cols, weight, labels)
        losses = _in_batch_softmax_losses(
            left, samples, log_share, self.tau, self.refined, counts, group
        )
        if weight is not None:
            losses = losses * weight[: len(left)]
        return mean_over_ranks(losses, total, group)
