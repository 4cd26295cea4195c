"""Which queries a retrieval sheet shows."""

from collections.abc import Sequence

import numpy as np

CHOICES = ('random', 'worst', 'best', 'differing')


def select_queries(
    average_precision: Sequence[np.ndarray], labels: np.ndarray, how: str, count: int, seed: int = 0
) -> list[int]:
    """Choose queries, of as many different classes as there are.

    Queries without a positive are never chosen. Equal ones are chosen at random, not by their place
    in the data set, where one class follows the other.

    Args:
        average_precision: (Q,) for each model, NaN without a positive.
        labels: (Q,) class of each query.
        how: ``'random'``; ``'best'`` or ``'worst'`` by the mean over the models; ``'differing'``:
            those on which models differ most.
        count: Queries at most, at least 1.
        seed: Seed of random choices.

    Returns:
        Positions of the queries, in order of choice.

    Raises:
        ValueError: If there is no such choice.
    """
    if how not in CHOICES:
        raise ValueError(f'how must be one of {CHOICES}, got {how!r}')
    values = np.stack(list(average_precision))
    key = {
        'random': np.zeros(values.shape[1]),
        'best': -values.mean(0),
        'worst': values.mean(0),
        'differing': -np.ptp(values, axis=0),
    }[how]
    order = np.random.default_rng(seed).permutation(values.shape[1])
    order = order[~np.isnan(values).any(0)[order]]
    order = order[np.argsort(key[order], kind='stable')]
    # First the first of each class, then the second of each, ...
    seen: dict[int, int] = {}
    turns = []
    for index in order:
        label = int(labels[index])
        turns.append(seen.get(label, 0))
        seen[label] = turns[-1] + 1
    chosen = order[np.argsort(turns, kind='stable')][:count]
    return [int(i) for i in chosen]
