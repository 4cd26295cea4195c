"""A small label matrix, its batches and its objectives, term by term."""

from itertools import combinations, product

import torch

from mmrank.losses import InBatchLoss

LABELS = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
SHAPE = tuple(LABELS.shape)
PAIRS = [tuple(x) for x in LABELS.nonzero().tolist()]
ROW_COUNTS, COL_COUNTS = LABELS.sum(1), LABELS.sum(0)
NUM_POSITIVES = len(PAIRS)
# Python's numbers: a float times an integer tensor would be float32.
_ROWS, _COLS, _LABELS = (x.tolist() for x in (ROW_COUNTS, COL_COUNTS, LABELS))
OMEGA = 0.3


def score_matrix(seed=0, spread=2.0):
    """(m, n) scores of all pairs that the gradient is asked for."""
    g = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(SHAPE, generator=g, dtype=torch.float64)
    return scores.requires_grad_()


def positive_loss(s, pointwise):
    if pointwise == 'square':
        return (1 - s) ** 2 / 2
    if pointwise == 'logistic':
        return torch.logaddexp(torch.zeros_like(s), -s)
    return pointwise.positive(s)


def negative_loss(s, pointwise):
    if pointwise == 'square':
        return s**2 / 2
    if pointwise == 'logistic':
        return torch.logaddexp(torch.zeros_like(s), s)
    return pointwise.negative(s)


def objective(scores, mode, pointwise, batch_size):
    """Expected objectives (5), (19), (15), (16) and (13)."""
    ratio = (batch_size - 1) / (NUM_POSITIVES - 1)
    total = 0
    for i, j in product(range(SHAPE[0]), range(SHAPE[1])):
        plus = positive_loss(scores[i, j], pointwise)
        minus = negative_loss(scores[i, j], pointwise)
        popularity = _ROWS[i] * _COLS[j]
        is_positive = _LABELS[i][j]
        if is_positive:
            total = total + plus
        if mode in ('unbiased', 'sogram'):
            weight = 1 - is_positive
        elif mode == 'unbiased_omega':
            weight = OMEGA * (1 - is_positive)
        elif mode == 'popularity':
            weight = popularity - is_positive
        elif mode == 'pos_neg':
            weight = ratio * (1 - is_positive)
        else:
            weight = ratio * (popularity - is_positive)
        total = total + weight * minus
    return total / (SHAPE[0] * SHAPE[1])


def batch_loss(scores, batch, mode, pointwise, second=None):
    """(17), (25), (26), (27), (28) or (34), printed term by term."""
    m, n = SHAPE
    size, all_pairs = len(batch), NUM_POSITIVES

    def plus(i, j):
        return positive_loss(scores[i, j], pointwise)

    def minus(i, j):
        return negative_loss(scores[i, j], pointwise)

    def p(i, j):
        return _ROWS[i] * _COLS[j]

    lefts, rights = [i for i, _ in batch], [j for _, j in batch]
    if mode == 'sogram':
        others = [j for _, j in second]
        diagonal = sum(plus(i, j) - minus(i, j) for i, j in batch)
        double = sum(minus(i, j) / p(i, j) for i in lefts for j in others)
        return (all_pairs / size * diagonal + all_pairs**2 / (size * len(second)) * double) / (
            m * n
        )
    double = sum(minus(i, j) for i in lefts for j in rights)
    weighted = sum(minus(i, j) / p(i, j) for i in lefts for j in rights)
    positives = sum(plus(i, j) for i, j in batch)
    negatives = sum(minus(i, j) for i, j in batch)
    if mode == 'in_batch':
        inner = positives + double - negatives
    elif mode == 'popularity':
        inner = positives + (all_pairs - 1) / (size - 1) * (double - negatives)
    elif mode == 'pos_neg':
        inner = positives + weighted
        inner = inner - sum(
            ((all_pairs - size) / (all_pairs - 1) / p(i, j) + (size - 1) / (all_pairs - 1))
            * minus(i, j)
            for i, j in batch
        )
    else:
        omega = OMEGA if mode == 'unbiased_omega' else 1
        inner = positives + omega * (all_pairs - 1) / (size - 1) * weighted
        inner = inner - omega * sum(
            ((all_pairs - size) / (size - 1) / p(i, j) + 1) * minus(i, j) for i, j in batch
        )
    return all_pairs / size * inner / (m * n)


def batches(size):
    """Every sample of that many pairs without replacement."""
    return list(combinations(PAIRS, size))


def indices(batch):
    """Rows and columns of a batch."""
    rows, cols = torch.tensor(batch).unbind(1)
    return rows, cols


def in_batch_loss(scores, rows, cols, row_counts, col_counts, mode, **settings):
    """The loss of pairs from their matrix of scores, the product of itself and the identity."""
    loss = InBatchLoss(mode, **settings)
    loss.counts.set_counts(row_counts, col_counts)
    return loss(scores, torch.eye(len(cols), dtype=scores.dtype), rows, cols)
