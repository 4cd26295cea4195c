"""The six losses of in-batch sampling as coefficients of one form.

All are, with the pairs p = 1..B of a batch in the diagonal of the score matrix, and ``x_p = 1 /
|O_i,:|``, ``y_q = 1 / |O_:,j|`` (or 1 and 1)::

    scale * ( sum_p [ l+_pp + (offset + slope x_p y_p) l-_pp ]
              + cross * sum_p sum_q x_p y_q l-_pq )

where the double sum runs over all pairs, the diagonal included, and the same entity in two pairs
counts twice. Source: "in-batch bias of two-tower models", equations (17), (25), (26), (27), (28)
and (34).
"""

from dataclasses import dataclass

IN_BATCH_MODES = (
    'unbiased',
    'unbiased_omega',
    'popularity',
    'pos_neg',
    'in_batch',
    'sogram',
    'in_batch_omega',
)
"""Names that ``mode`` of the in-batch losses takes."""


@dataclass(frozen=True)
class InBatchCoefficients:
    """Numbers of the common form.

    Attributes:
        scale: Factor of the whole.
        offset: Constant part of the weight of a diagonal ``l-``.
        slope: Its part in proportion to ``x_p y_p``.
        cross: Factor of the double sum.
        by_counts: Whether x and y are the reciprocal counts, not 1.
    """

    scale: float
    offset: float
    slope: float
    cross: float
    by_counts: bool


def in_batch_coefficients(
    mode: str,
    omega: float,
    batch_size: int,
    num_positives: int,
    shape: tuple[int, int],
    second_size: int = 0,
) -> InBatchCoefficients:
    """Coefficients of a mode.

    Args:
        mode: One of ``IN_BATCH_MODES``.
        omega: Weight of the negatives in the modes that end in ``_omega``.
        batch_size: ``|Ohat|``, over all ranks; of the first sample in ``sogram``.
        num_positives: ``|O|``.
        shape: (m, n), numbers of left and right entities.
        second_size: Size of the second sample of ``sogram``.

    Raises:
        ValueError: On an unknown mode or sizes that the mode cannot do with.
    """
    if mode not in IN_BATCH_MODES:
        raise ValueError(f'mode={mode!r} is unknown; use one of {IN_BATCH_MODES}')
    _check_sizes(mode, batch_size, num_positives, second_size)
    scale = num_positives / batch_size / (shape[0] * shape[1])
    if mode == 'sogram':
        return InBatchCoefficients(scale, -1.0, 0.0, num_positives / second_size, True)
    # 1 also where both are 1, and the ratio would be 0 / 0.
    ratio = 1.0 if batch_size == num_positives else (batch_size - 1) / (num_positives - 1)
    if mode == 'in_batch':
        return InBatchCoefficients(scale, 0.0, -1.0, 1.0, False)
    if mode == 'in_batch_omega':
        return InBatchCoefficients(scale, 0.0, -omega, omega, False)
    if mode == 'pos_neg':
        return InBatchCoefficients(scale, -ratio, ratio - 1, 1.0, True)
    if ratio == 0:
        raise ValueError(
            f'mode={mode!r} needs at least 2 pairs in a batch, got 1: no '
            'batch of one pair has a negative. Fix: a larger batch_size, or '
            "mode='sogram'"
        )
    cross = 1 / ratio
    if mode == 'popularity':
        return InBatchCoefficients(scale, 0.0, -cross, cross, False)
    weight = omega if mode == 'unbiased_omega' else 1.0
    return InBatchCoefficients(scale, -weight, weight * (1 - cross), weight * cross, True)


def _check_sizes(mode, batch_size, num_positives, second_size) -> None:
    if batch_size < 1 or (mode == 'sogram' and second_size < 1):
        raise ValueError(
            "a batch must have at least one pair, and mode='sogram' at least "
            f'one in each of its samples; got {batch_size} and {second_size}'
            if mode == 'sogram'
            else 'a batch must have at least one pair, got none'
        )
    if max(batch_size, second_size) > num_positives:
        raise ValueError(
            f'the batch has {max(batch_size, second_size)} pairs, but '
            f'num_positives={num_positives}: it was sampled with replacement,'
            ' or num_positives is not the number of all positive pairs'
        )
