"""Losses of in-batch sampling for two-tower models."""

import torch
from torch import Tensor

from mmrank.state.pair_counts import check_columns, check_counts, check_pairs

from .coefficients import in_batch_coefficients
from .pointwise import Pointwise, build_pointwise


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
    """Loss of a batch of positive pairs, from the matrix of their scores.

    Source: "in-batch bias of two-tower models", appendices D.1 and F.3. With batches drawn
    uniformly without replacement the expectation is

    - ``unbiased`` (17) and ``sogram`` (34): the full objective (5);
    - ``unbiased_omega`` (25): its negatives weighted by omega (19);
    - ``popularity`` (26): every ``l-`` weighted by ``|O_i,:| |O_:,j|`` (15);
    - ``pos_neg`` (27): the negatives weighted by
      ``(|Ohat| - 1) / (|O| - 1)`` (16);
    - ``in_batch`` (28): both biases (13).

    ``in_batch_omega`` is ``in_batch`` with the negatives weighted by omega; with all of O as the
    batch it is the full-gradient form of G.2.

    ``sogram`` takes two independent samples: the first B1 pairs are the
    first one, the rest the second. Of the second only the right entities
    matter: ``scores`` may be (B1, B) beside (B1,) ``rows``. A square ``scores`` is split in the
    middle, the first sample having the odd one.

    Args:
        scores: (B, B) floats of any size; entry (p, q) is the inner product
            of the left entity of pair p and the right one of pair q. Half precision is computed in
            float32.
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

    Raises:
        TypeError: If indices are not integers.
        ValueError: On shapes that do not fit, an unknown mode or pointwise loss, an index out of
            range, an entity without positives, a pair that occurs twice in one sample, fewer than
            two pairs where the mode needs two, or more than ``num_positives``.

    Example:
        >>> import torch
        >>> in_batch_loss(
        ...     torch.eye(2), torch.tensor([0, 1]), torch.tensor([0, 1]),
        ...     torch.tensor([1, 1]), torch.tensor([1, 1]), 2,
        ...     mode='unbiased', shape=(2, 2))
        tensor(0.)
    """
    first = first_sample(mode, len(rows), len(cols))
    start = first if mode == 'sogram' else 0
    if scores.shape != (len(rows), len(cols)):
        raise ValueError(
            f'scores must be {(len(rows), len(cols))}, left entities of the '
            f'pairs x right ones, got {tuple(scores.shape)}'
        )
    check_samples(rows, cols, first, mode, shape)
    check_counts('row_counts', row_counts, shape[0])
    check_counts('col_counts', col_counts, shape[1])
    check_second_sample(cols[start:], col_counts, mode)
    pointwise = build_pointwise(pointwise)
    form = in_batch_coefficients(mode, omega, first, num_positives, shape, len(cols) - start)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    x = pair_weights(rows, row_counts, form.by_counts, scores.dtype)[:first]
    y = pair_weights(cols, col_counts, form.by_counts, scores.dtype)
    with torch.autocast(scores.device.type, enabled=False):
        diagonal = diagonal_sum(
            scores[:first, :first].diagonal(), form.offset + form.slope * x * y[:first], pointwise
        )
        cross = x @ (pointwise.negative(scores[:first, start:]) @ y[start:])
    return form.scale * (diagonal + form.cross * cross)


def first_sample(mode: str, num_rows: int, num_cols: int) -> int:
    """Number of pairs in the first sample: all, but for ``sogram``."""
    if mode != 'sogram' or num_rows != num_cols:
        return num_rows
    return (num_rows + 1) // 2


def check_samples(
    rows: Tensor, cols: Tensor, first: int, mode: str, shape: tuple[int, int]
) -> None:
    """Check each sample of a batch on its own; see :func:`check_pairs`."""
    if mode != 'sogram':
        check_pairs(rows, cols, shape)
        return
    if len(rows) > len(cols):
        raise ValueError(
            "mode='sogram' takes the columns of both samples concatenated, "
            f'got {len(cols)} for {len(rows)} rows'
        )
    check_pairs(rows[:first], cols[:first], shape, 'the first sample')
    if len(rows) == len(cols):
        check_pairs(rows[first:], cols[first:], shape, 'the second sample')
    else:
        # Without their rows the second sample's pairs are unknown.
        check_pairs(
            torch.arange(len(cols) - first, device=cols.device),
            cols[first:],
            (len(cols) - first, shape[1]),
            'the second sample',
        )


def check_second_sample(cols: Tensor, col_counts: Tensor, mode: str) -> None:
    """Refuse columns that no second sample of ``sogram`` can have."""
    if mode == 'sogram':
        check_columns(cols, col_counts, 'the second sample')


def pair_weights(indices: Tensor, counts: Tensor, by_counts: bool, dtype: torch.dtype) -> Tensor:
    """(B,) reciprocal counts of the entities of pairs, or ones."""
    if not by_counts:
        return torch.ones(len(indices), dtype=dtype, device=indices.device)
    return counts.detach()[indices.long()].to(dtype).reciprocal()


def diagonal_sum(scores: Tensor, negative_weights: Tensor, pointwise: Pointwise) -> Tensor:
    """Sum of ``l+`` and the weighted ``l-`` over the sampled pairs."""
    losses = pointwise.positive(scores)
    return (losses + negative_weights * pointwise.negative(scores)).sum()
