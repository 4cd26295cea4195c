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

from mmrank.checks import check_positive, one_of
from mmrank.distributed import all_gather_rows, scale_gradient, sizes_and_dtype, world_group
from mmrank.errors import UserError
from mmrank.losses.options import ScopedLoss
from mmrank.state.pair_counts import PairCounts, check_columns, check_counts, check_pairs
from mmrank.tensors import at_least_float32, check_tensors

from .pair_embeddings import check_widths, common_dtype, embedding_index
from .pointwise import Pointwise, build_pointwise
from .sums import pair_scores, weighted_cross_sum

#: Names that ``mode`` of the in-batch losses takes.
IN_BATCH_MODES = (
    'unbiased',
    'unbiased_omega',
    'popularity',
    'pos_neg',
    'in_batch',
    'sogram',
    'in_batch_omega',
)


class _Form(NamedTuple):
    """Coefficients of the common form; ``by_counts`` if x and y are the reciprocal counts."""

    scale: float
    offset: float
    slope: float
    cross: float
    by_counts: bool


def _form_of(
    mode: str,
    omega: float,
    batch_size: int,
    num_positives: int,
    shape: tuple[int, int],
    second_size: int,
) -> _Form:
    """Coefficients of a mode, for ``|Ohat|`` pairs of all ranks; see :func:`in_batch_loss`."""
    one_of('mode', mode, IN_BATCH_MODES)
    if batch_size < 1 or (mode == 'sogram' and second_size < 1):
        raise ValueError(
            "a batch must have at least one pair, and mode='sogram' at least "
            f'one in each of its samples; got {batch_size} and {second_size}'
        )
    if max(batch_size, second_size) > num_positives:
        raise ValueError(
            f'the batch has {max(batch_size, second_size)} pairs, but '
            f'num_positives={num_positives}: it was sampled with replacement,'
            ' or num_positives is not the number of all positive pairs'
        )
    scale = num_positives / batch_size / (shape[0] * shape[1])
    if mode == 'sogram':
        return _Form(scale, -1.0, 0.0, num_positives / second_size, True)
    if mode in ('in_batch', 'in_batch_omega'):
        weight = omega if mode == 'in_batch_omega' else 1.0
        return _Form(scale, 0.0, -weight, weight, False)
    # 1 also where both are 1, and the ratio would be 0 / 0.
    ratio = 1.0 if batch_size == num_positives else (batch_size - 1) / (num_positives - 1)
    if mode == 'pos_neg':
        return _Form(scale, -ratio, ratio - 1, 1.0, True)
    if ratio == 0:
        raise UserError(
            f'mode={mode!r} needs at least 2 pairs in a batch, got 1: no batch of one pair has a '
            "negative. Fix: a larger batch_size, or mode='sogram'"
        )
    cross = 1 / ratio
    if mode == 'popularity':
        return _Form(scale, 0.0, -cross, cross, False)
    weight = omega if mode == 'unbiased_omega' else 1.0
    return _Form(scale, -weight, weight * (1 - cross), weight * cross, True)


def in_batch_loss(
    scores: Tensor,
    rows: Tensor,
    cols: Tensor,
    row_counts: Tensor,
    col_counts: Tensor,
    num_positives: int,
    *,
    mode: str,
    omega: float = 1.0,
    pointwise: str | Pointwise = 'square',
    shape: tuple[int, int],
) -> Tensor:
    """Loss of a batch of positive pairs, from the (B, B) matrix of their scores.

    Source: "in-batch bias of two-tower models", appendices D.1 and F.3. With batches drawn
    uniformly without replacement the expectation is

    - ``unbiased`` (17) and ``sogram`` (34): the full objective (5);
    - ``unbiased_omega`` (25): its negatives weighted by omega (19);
    - ``popularity`` (26): every ``l-`` weighted by ``|O_i,:| |O_:,j|`` (15);
    - ``pos_neg`` (27): the negatives weighted by ``(|Ohat| - 1) / (|O| - 1)`` (16);
    - ``in_batch`` (28): both biases (13).

    ``in_batch_omega`` is ``in_batch`` with the negatives weighted by omega; with all of O as the
    batch it is the full-gradient form of G.2.

    ``sogram`` takes two independent samples: the first B1 pairs are the first one, the rest the
    second. Of the second only the right entities matter: ``scores`` may be (B1, B) with (B1,)
    ``rows``. A square ``scores`` is split in the middle, the first sample having the odd one.

    Args:
        scores: (B, B) floats of any size; entry (p, q) is the inner product of the left entity of
            pair p and the right one of pair q.
        rows: (B,) integers in ``[0, m)``: left entity of each pair.
        cols: (B,) integers in ``[0, n)``: right entity of each pair.
        row_counts: (m,) numbers >= 1: positives of each left entity in O.
        col_counts: (n,) numbers >= 1: positives of each right entity.
        num_positives: ``|O|``, the number of all positive pairs.
        mode: See above.
        omega: Weight of the negatives, for modes that end in ``_omega``; others ignore it.
        pointwise: ``square`` (targets 1 and 0), ``logistic`` (labels +1 and -1), or a
            :class:`~mmrank.functional.Pointwise`.
        shape: (m, n).

    Returns:
        Scalar of the dtype of ``scores``, at least float32. May be negative: an estimate of a
        non-negative objective.
    """
    first, start = _first_sample(mode, len(rows), len(cols))
    if scores.shape != (len(rows), len(cols)):
        raise ValueError(
            f'scores must be {(len(rows), len(cols))}, left entities of the '
            f'pairs x right ones, got {tuple(scores.shape)}'
        )
    _check_samples(rows, cols, row_counts, col_counts, mode, shape)
    pointwise = build_pointwise(pointwise)
    form = _form_of(mode, omega, first, num_positives, shape, len(cols) - start)
    scores = at_least_float32(scores)
    x = _pair_weights(rows, row_counts, form, scores.dtype)[:first]
    y = _pair_weights(cols, col_counts, form, scores.dtype)
    with torch.autocast(scores.device.type, enabled=False):
        own = scores[:first, :first].diagonal()
        diagonal = _diagonal_sum(own, form.offset + form.slope * x * y[:first], pointwise)
        cross = x @ (pointwise.negative(scores[:first, start:]) @ y[start:])
    return form.scale * (diagonal + form.cross * cross)


def in_batch_embedding_loss(
    left: Tensor,
    right: Tensor,
    rows: Tensor,
    cols: Tensor,
    row_counts: Tensor,
    col_counts: Tensor,
    num_positives: int,
    *,
    mode: str,
    omega: float = 1.0,
    pointwise: str | Pointwise = 'square',
    shape: tuple[int, int],
    left_index: Tensor | None = None,
    right_index: Tensor | None = None,
    group=None,
) -> Tensor:
    """:func:`in_batch_loss` on ``left @ right.t()``, without the matrix of all scores.

    The square loss costs O(B D^2), others are computed in blocks; see :func:`weighted_cross_sum`.

    - ``left``: (B, D) floats; or one for each distinct entity, (U, D), with ``left_index``, (B,)
      integers in ``[0, U)``. ``right`` and ``right_index`` likewise. With all pairs of a data set
      as the batch this is the full objective in O(m n D) or less.
    - ``rows``: (B,), or (B1,) for ``sogram``, with (B1 + B2,) ``cols``.
    - ``group``: Process group whose ranks hold parts of one batch, of any sizes, also 0. The
      value is the joined batch's value on every rank. The gradient is W times this rank's part of
      it, so that DistributedDataParallel's mean over the ranks is the joined batch's; every rank
      must run backward. None: one process.
    """
    first, start = _first_sample(mode, len(rows), len(cols))
    left_index = embedding_index('left', left, left_index, len(rows))
    right_index = embedding_index('right', right, right_index, len(cols))
    check_widths(left, right)
    _check_samples(rows, cols, row_counts, col_counts, mode, shape)
    pointwise = build_pointwise(pointwise)
    sizes = [[first, len(cols) - start, len(right)]]
    dtype = common_dtype(left, right)
    if group is not None:
        sizes, dtype = sizes_and_dtype(sizes[0], dtype, group, left.device)
    firsts, seconds, entities = zip(*sizes)
    if group is not None:
        # Refuse ranks that sampled on their own, not parts of one sample.
        pairs = torch.stack([rows[:first], cols[:first]], dim=1).long()
        pairs = all_gather_rows(pairs, firsts, group)
        check_pairs(pairs[:, 0], pairs[:, 1], shape, 'the batch of all ranks')
        if mode == 'sogram':
            second = all_gather_rows(cols[start:, None].long(), seconds, group)
            check_columns(second[:, 0], col_counts, 'the second sample of all ranks')
    form = _form_of(mode, omega, sum(firsts), num_positives, shape, sum(seconds))

    left = left.to(dtype)
    right = right.to(dtype)
    if group is not None:
        size = dist.get_world_size(group)
        left = scale_gradient(left, size)
        right = scale_gradient(right, size)
    x = _pair_weights(rows, row_counts, form, dtype)[:first]
    y = _pair_weights(cols, col_counts, form, dtype)
    left_index = left_index[:first]
    with torch.autocast(left.device.type, enabled=False):
        scores = pair_scores(left, right, left_index, right_index[:first])
        diagonal = _diagonal_sum(scores, form.offset + form.slope * x * y[:first], pointwise)
        x = x.new_zeros(len(left)).index_add_(0, left_index, x)
        y = y.new_zeros(len(right)).index_add_(0, right_index[start:], y[start:])
        if group is not None:
            joined = torch.cat([right, y[:, None]], dim=1)
            joined = all_gather_rows(joined, entities, group)
            right = joined[:, :-1]
            y = joined[:, -1].detach()
        cross = weighted_cross_sum(left, right, x, y, pointwise)
    loss = form.scale * (diagonal + form.cross * cross)
    if group is None:
        return loss
    joined = loss.detach().clone()
    dist.all_reduce(joined, group=group)
    return loss + (joined - loss).detach()


def _first_sample(mode: str, num_rows: int, num_cols: int) -> tuple[int, int]:
    """Pairs in the first sample, and where the second one starts: 0 where there is one sample."""
    if mode != 'sogram':
        return num_rows, 0
    first = (num_rows + 1) // 2 if num_rows == num_cols else num_rows
    return first, first


def _check_samples(rows, cols, row_counts, col_counts, mode: str, shape) -> None:
    """Check each sample of a batch on its own, and the counts."""
    first, start = _first_sample(mode, len(rows), len(cols))
    if mode != 'sogram':
        check_pairs(rows, cols, shape)
    elif len(rows) > len(cols):
        raise ValueError(
            "mode='sogram' takes the columns of both samples concatenated, "
            f'got {len(cols)} for {len(rows)} rows'
        )
    else:
        check_pairs(rows[:first], cols[:first], shape, 'the first sample')
        second = rows[first:]
        size = shape
        if len(rows) != len(cols):
            # Without their rows the second sample's pairs are unknown.
            second = torch.arange(len(cols) - first, device=cols.device)
            size = len(second), shape[1]
        check_pairs(second, cols[first:], size, 'the second sample')
    check_counts('row_counts', row_counts, shape[0])
    check_counts('col_counts', col_counts, shape[1])
    if mode == 'sogram':
        check_columns(cols[start:], col_counts, 'the second sample')


def _pair_weights(indices: Tensor, counts: Tensor, form: _Form, dtype: torch.dtype) -> Tensor:
    """(B,) reciprocal counts of the entities of pairs, or ones."""
    if not form.by_counts:
        return torch.ones(len(indices), dtype=dtype, device=indices.device)
    return counts.detach()[indices.long()].to(dtype).reciprocal()


def _diagonal_sum(scores: Tensor, negative_weights: Tensor, pointwise: Pointwise) -> Tensor:
    """Sum of ``l+`` and the weighted ``l-`` over the sampled pairs."""
    losses = pointwise.positive(scores)
    return (losses + negative_weights * pointwise.negative(scores)).sum()


class InBatchLoss(ScopedLoss):
    """Loss of a batch of positive pairs of a two-tower model.

    Source: "in-batch bias of two-tower models", appendices D.1 and F.3; see
    :func:`mmrank.functional.in_batch_loss` for the modes. The counts of the training pairs are set
    by ``mmrank.PairCountsHook`` or :meth:`set_pairs`; they are not part of a checkpoint.

    **Half precision.** The loss is computed in float32. A gradient beyond 65504 is infinite in
    float16, so that a ``GradScaler`` skips the step.

    Args:
        mode: ``unbiased``, ``unbiased_omega``, ``popularity``, ``pos_neg``, ``in_batch``,
            ``sogram`` or ``in_batch_omega``.
        pointwise: ``square``, ``logistic``, or a :class:`mmrank.functional.Pointwise`.
        omega: Weight of the negatives, > 0, only for modes that end in ``_omega``.
        **kwargs: ``scope`` and ``loss_weight`` of :class:`ScopedLoss`; with ``global`` the ranks
            sample one batch together.

    Example:
        >>> import torch
        >>> loss = InBatchLoss(mode='unbiased', pointwise='square')
        >>> pairs = torch.tensor([0, 1])
        >>> loss.set_pairs(pairs, pairs, (2, 2))
        >>> loss(torch.eye(2), torch.eye(2), pairs, pairs)
        tensor(0.)
    """

    wants_pair_counts = True

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
        if omega != 1 and not mode.endswith('_omega'):
            raise ValueError(
                f'omega={omega!r} has no effect with mode={mode!r}; use '
                "mode='unbiased_omega', or remove omega"
            )
        self.mode = mode
        self.omega = omega
        self.pointwise = build_pointwise(pointwise)
        self.counts = PairCounts()

    def set_pairs(self, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
        """See :meth:`PairCounts.set_pairs`."""
        self.counts.set_pairs(rows, cols, shape)

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        rows: Tensor,
        cols: Tensor,
        left_index: Tensor | None = None,
        right_index: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch; may be negative.

        Args:
            left: (B, D) floats; or one for each distinct entity, (U, D), with ``left_index``.
            right: Likewise, with ``right_index``.
            rows: (B,) left entities of the pairs; (B1,) for ``sogram``.
            cols: (B,) right entities of the pairs; (B1 + B2,) for ``sogram``.
            left_index: (B,) integers in ``[0, U)``: the embedding of each pair.
            right_index: Likewise.
        """
        self.counts.require()
        check_tensors(left=left, right=right, rows=rows, cols=cols)
        counts = self.counts
        return self.loss_weight * in_batch_embedding_loss(
            *(left, right, rows, cols),
            *(counts.row_counts, counts.col_counts, counts.num_positives),
            mode=self.mode,
            omega=self.omega,
            pointwise=self.pointwise,
            shape=counts.shape,
            left_index=left_index,
            right_index=right_index,
            group=world_group() if self.scope == 'global' else None,
        )
