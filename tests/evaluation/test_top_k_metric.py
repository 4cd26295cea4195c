"""P@K, R@K and NDCG@K against their definitions."""

from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.evaluation import TopKMetric
from mmrank.registry import METRICS


def brute_force(top, true, k):
    hits = [j in true and j >= 0 for j in top[:k]]
    ideal = sum(1 / log2(r + 1) for r in range(1, min(k, len(true)) + 1))
    gain = sum(h / log2(r + 1) for r, h in enumerate(hits, 1))
    return [sum(hits) / k, sum(hits) / len(true), gain / ideal]


@given(st.integers(0, 10_000))
def test_means_over_batches_equal_the_definitions(seed):
    rng = np.random.default_rng(seed)
    top = np.stack([rng.permutation(9)[:6] for _ in range(4)])
    # Fewer than six to choose from.
    top[1, rng.integers(0, 6) :] = -1
    true = [sorted(rng.permutation(10)[: rng.integers(1, 8)]) for _ in range(4)]
    metric = METRICS.build(dict(type='mmrank.TopKMetric', k=(6, 1, 3)))
    for part in (slice(0, 3), slice(3, 4)):
        own = true[part]
        rows = np.repeat(np.arange(len(own)), [len(x) for x in own])
        pairs = dict(rows=torch.tensor(rows), cols=torch.tensor(np.concatenate(own)))
        metric.process(dict(true=pairs), [dict(top_k=torch.tensor(x)) for x in top[part]])
    found = metric.evaluate(size=4)
    expected = {}
    for k in (1, 3, 6):
        figures = [brute_force(best.tolist(), own, k) for best, own in zip(top, true)]
        for name, value in zip(('precision', 'recall', 'ndcg'), np.mean(figures, axis=0)):
            expected[f'top_k/{name}@{k}'] = 100 * value
    assert found == pytest.approx(expected)


def test_an_entity_without_held_out_pairs_is_refused():
    batch = dict(true=dict(rows=torch.tensor([1]), cols=torch.tensor([1])))
    with pytest.raises(ValueError, match='left entity 0'):
        TopKMetric(k=(1,)).process(batch, [dict(top_k=torch.arange(3))] * 2)
