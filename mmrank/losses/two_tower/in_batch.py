"""The six losses of in-batch sampling for two-tower models, and one with weighted negatives.

All are, with the pairs p = 1..B of a batch in the diagonal of the score matrix, and ``x_p = 1 /
|O_i,:|``, ``y_q = 1 / |O_:,j|`` (or 1 and 1)::

    scale * ( sum_p [ l+_pp + (offset + slope x_p y_p) l-_pp ]
              + cross * sum_p sum_q x_p y_q l-_pq )

where the double sum runs over all pairs, the diagonal included, and the same entity in two pairs
counts twice. Source: "in-batch bias of two-tower models", equations (17), (25), (26), (27), (28)
and (34).
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import can_sync, violated
from mmrank.distributed import all_gather_rows, joined_group, scale_gradient, sizes_and_dtype
from mmrank.errors import UserError
from mmrank.settings import check_positive, one_of
from mmrank.state.pair_counts import check_columns, check_entities, check_pairs
from mmrank.tensors import none_absent, zero_absent

from .base import PairBatch, TwoTowerLoss, common_dtype
from .pointwise import Pointwise, build_pointwise
from .sums import pair_scores, weighted_cross_sum

#: Names that ``mode`` of the in-batch losses takes.
IN_BATCH_MODES = ('unbiased', 'unbiased_omega', 'popularity', 'pos_neg', 'in_batch', 'sogram')
#: Those whose negatives are other pairs of the batch.
_OF_TWO_PAIRS = ('unbiased', 'unbiased_omega', 'popularity')
_WRONG_SUM = 'the weights of a batch do not sum up to a number of training pairs'


class _Form(NamedTuple):
    """Coefficients of the common form; ``by_counts`` if x and y are the reciprocal counts."""

    scale: float | Tensor
    offset: float | Tensor
    slope: float | Tensor
    cross: float | Tensor
    by_counts: bool


def _is_true(condition: bool | Tensor) -> bool:
    return violated(~condition, _WRONG_SUM) if isinstance(condition, Tensor) else condition


def _form_of(
    mode: str,
    omega: float,
    batch_size: int | Tensor,
    num_positives: int,
    shape: tuple[int, int],
    second_size: int | Tensor,
) -> _Form:
    """Coefficients of a mode, for ``|Ohat|`` pairs of all ranks; see :class:`InBatchLoss`."""
    # Sums of weights are rounded.
    if _is_true((batch_size < 0.999) | ((mode == 'sogram') & (second_size < 0.999))):
        raise ValueError(
            "a batch must have at least one pair, and mode='sogram' at least "
            f'one in each of its samples; got {batch_size} and {second_size}'
        )
    most = num_positives + 0.5
    if _is_true((batch_size > most) | (second_size > most)):
        raise ValueError(
            f'the batch has {max(batch_size, second_size)} pairs, but '
            f'num_positives={num_positives}: it was sampled with replacement,'
            ' num_positives is not the number of all positive pairs, or weights are above 1 on '
            'average. Fix: weight / weight.mean()'
        )
    scale = num_positives / batch_size / (shape[0] * shape[1])
    if mode == 'sogram':
        return _Form(scale, -1.0, 0.0, num_positives / second_size, True)
    if mode == 'in_batch':
        return _Form(scale, 0.0, -1.0, 1.0, False)
    # 1 also where both are 1, and the ratio would be 0 / 0.
    ratio = 1.0 if num_positives == 1 else (batch_size - 1) / (num_positives - 1)
    if mode == 'pos_neg':
        return _Form(scale, -ratio, ratio - 1, 1.0, True)
    if _is_true((batch_size < 1.999) & (num_positives > 1)):
        raise UserError(
            f'mode={mode!r} needs at least 2 pairs in a batch, got {batch_size:g}: no batch of one '
            "pair has a negative. Fix: a larger batch_size, or mode='sogram'; weights of mean 1"
        )
    cross = 1 / ratio
    if mode == 'popularity':
        return _Form(scale, 0.0, -omega * cross, omega * cross, False)
    return _Form(scale, -omega, omega * (1 - cross), omega * cross, True)


def _pair_weights(indices: Tensor, counts: Tensor, form: _Form, dtype: torch.dtype) -> Tensor:
    """(B,) reciprocal counts of the entities of pairs, or ones."""
    if not form.by_counts:
        return torch.ones(len(indices), dtype=dtype, device=indices.device)
    return counts.detach()[indices.long()].to(dtype).reciprocal()


class InBatchLoss(TwoTowerLoss):
    """Loss of a batch of positive pairs of a two-tower model.

    Source: "in-batch bias of two-tower models", appendices D.1 and F.3. With batches drawn
    uniformly without replacement the expectation is

    - ``unbiased`` (17) and ``sogram`` (34): the full objective (5);
    - ``unbiased_omega`` (25): its negatives weighted by omega (19);
    - ``popularity`` (26): every ``l-`` weighted by ``|O_i,:| |O_:,j|`` (15), and by omega;
    - ``pos_neg`` (27): the negatives weighted by ``(|Ohat| - 1) / (|O| - 1)`` (16);
    - ``in_batch`` (28): both biases (13).

    The value may be negative: an estimate of an objective that is not. ``sogram`` takes two
    independent samples, (B1,) ``rows`` and (B1 + B2,) ``cols``: of the second only the right
    entities matter. As many rows as columns are both samples, the first of which has the odd pair.

    The counts of the training pairs are set by ``mmrank.PairCountsHook`` or :meth:`set_pairs`; they
    are not part of a checkpoint. There is no matrix of all scores: the square loss costs O(B D^2),
    others are computed in blocks.

    A pair of weight w counts as w pairs in all sums, its own copies included as equal
    entities are, and in ``|Ohat|``. The counts ``|O|`` stay as they are set, so weights should be 1
    on average. With weights a pair may come up twice.

    With ``scope='global'`` the ranks sample one batch together. The loss is computed in float32; a
    gradient beyond 65504 is infinite in float16, so that a ``GradScaler`` skips the step.

    Args:
        mode: See above.
        pointwise: ``square`` (targets 1 and 0), ``logistic`` (labels +1 and -1), or a
            :class:`mmrank.functional.Pointwise`.
        omega: Weight of the negatives, > 0, only for ``unbiased_omega`` and ``popularity``.

    Example:
        >>> loss = InBatchLoss(mode='unbiased', pointwise='square')
        >>> pairs = torch.tensor([0, 1])
        >>> loss.set_pairs(pairs, pairs, (2, 2))
        >>> loss(torch.eye(2), torch.eye(2), pairs, pairs)
        tensor(0.)
    """

    def __init__(
        self,
        mode: str = 'unbiased',
        pointwise: str | Pointwise = 'square',
        omega: float = 1.0,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        one_of('mode', mode, IN_BATCH_MODES)
        check_positive(omega=omega)
        if omega != 1 and mode not in ('unbiased_omega', 'popularity'):
            what = f'omega={omega!r} has no effect with mode={mode!r}'
            raise ValueError(f"{what}; use mode='unbiased_omega' or 'popularity', or remove omega")
        self.mode = mode
        self.omega = omega
        self.pointwise = build_pointwise(pointwise)
        self._lone_batches = 0

    def batch_loss(self, batch: PairBatch) -> Tensor:
        counts = self.counts
        left = batch.left
        right = batch.right
        rows = batch.rows
        cols = batch.cols
        left_index = _row_of_each(batch.left_index, left)
        right_index = _row_of_each(batch.right_index, right)
        weight = None if batch.weight is None else batch.weight.double()
        start = 0
        has_second = self.mode == 'sogram'
        if has_second:
            start = (len(rows) + 1) // 2 if len(rows) == len(cols) else len(rows)
            rows = rows[:start]
            left_index = left_index[:start]
        first = len(rows)
        check_pairs(rows, cols[:first] if has_second else cols, counts.shape, once=weight is None)
        if has_second:
            check_entities('cols', cols, counts.shape[1])
        if has_second and weight is None:
            check_columns(cols[start:], counts.col_counts, 'the second sample')
        sizes = [[first, len(cols) - start, len(right), int(weight is not None)]]
        dtype = common_dtype(left, right)
        group = joined_group(self)
        if group is not None:
            sizes, dtype = sizes_and_dtype(sizes[0], dtype, group, left.device)
        firsts, seconds, entities, weighted = zip(*sizes)
        if any(weighted) and weight is None:
            weight = left.new_ones(len(cols), dtype=torch.float64)
        if group is not None and weight is None:
            # Refuse ranks that sampled on their own, not parts of one sample.
            pairs = torch.stack([rows, cols[:first]], dim=1).long()
            pairs = all_gather_rows(pairs, firsts, group)
            check_pairs(pairs[:, 0], pairs[:, 1], counts.shape, 'the batch of all ranks')
            if has_second:
                second = all_gather_rows(cols[start:, None].long(), seconds, group)
                check_columns(second[:, 0], counts.col_counts, 'the second sample of all ranks')
        totals = sum(firsts), sum(seconds)
        if weight is not None:
            totals = torch.stack([weight[:first].sum(), weight[start:].sum()])
            if group is not None:
                dist.all_reduce(totals, group=group)
            totals = totals.tolist() if can_sync(totals) else totals
            if not none_absent(weight):
                # An entity of no pair that counts may be NaN.
                used = [weight.new_zeros(len(x)) for x in (left, right)]
                (left,) = zero_absent(used[0].index_add_(0, left_index, weight[:first]), (left,))
                (right,) = zero_absent(used[1].index_add_(0, right_index, weight), (right,))
        is_lone = weight is None and totals[0] == 1 < counts.num_positives
        is_lone = is_lone and self.mode in _OF_TWO_PAIRS
        self._lone_batches = self._lone_batches + 1 if is_lone and self.training else 0
        if is_lone and self._lone_batches < 2:  # the last one of an epoch
            return (left[:0].sum() + right[:0].sum()).to(dtype)
        form = _form_of(
            *(self.mode, self.omega, totals[0], counts.num_positives, counts.shape, totals[1])
        )
        left = left.to(dtype)
        right = right.to(dtype)
        if group is not None:
            size = dist.get_world_size(group)
            left = scale_gradient(left, size)
            right = scale_gradient(right, size)
        x = _pair_weights(rows, counts.row_counts, form, dtype)
        y = _pair_weights(cols, counts.col_counts, form, dtype)
        with torch.autocast(left.device.type, enabled=False):
            scores = pair_scores(left, right, left_index, right_index[:first])
            negative = form.offset + form.slope * x * y[:first]
            diagonal = self.pointwise.positive(scores) + negative * self.pointwise.negative(scores)
            if weight is not None:
                weight = weight.to(dtype)
                diagonal = diagonal * weight[:first]
                x = x * weight[:first]
                y = y * weight
            x = x.new_zeros(len(left)).index_add_(0, left_index, x)
            y = y.new_zeros(len(right)).index_add_(0, right_index[start:], y[start:])
            if group is not None:
                joined = torch.cat([right, y[:, None]], dim=1)
                joined = all_gather_rows(joined, entities, group)
                right = joined[:, :-1]
                y = joined[:, -1].detach()
            cross = weighted_cross_sum(left, right, x, y, self.pointwise)
        loss = (form.scale * (diagonal.sum() + form.cross * cross)).to(dtype)
        if group is not None:
            total = loss.detach().clone()
            dist.all_reduce(total, group=group)
            loss = loss + (total - loss).detach()
        return loss


def _row_of_each(index: Tensor | None, embeddings: Tensor) -> Tensor:
    """(B,) int64 row of the embeddings that each entity has; without an index they are in order."""
    if index is None:
        return torch.arange(len(embeddings), device=embeddings.device)
    return index.long()
