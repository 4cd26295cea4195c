"""P@K, R@K and NDCG@K against their definitions."""

from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.evaluation.top_k_metric import TopKMetric, _top_k_figures
from mmrank.registry import METRICS


def brute_force(top, true, k):
    hits = [j in true and j >= 0 for j in top[:k]]
    ideal = sum(1 / log2(r + 1) for r in range(1, min(k, len(true)) + 1))
    gain = sum(h / log2(r + 1) for r, h in enumerate(hits, 1))
    return [sum(hits) / k, sum(hits) / len(true), gain / ideal]


@given(st.integers(0, 10_000))
def test_equals_the_definitions(seed):
    rng = np.random.default_rng(seed)
    top = np.stack([rng.permutation(9)[:6] for _ in range(4)])
    # Fewer than six to choose from.
    top[1, rng.integers(0, 6) :] = -1
    true = [sorted(rng.permutation(10)[: rng.integers(1, 8)]) for _ in range(4)]
    figures = _top_k_figures(
        top, np.repeat(np.arange(4), [len(x) for x in true]), np.concatenate(true), (1, 3, 6)
    )
    for i in range(4):
        for at, k in enumerate((1, 3, 6)):
            np.testing.assert_allclose(figures[i, :, at], brute_force(top[i].tolist(), true[i], k))


def test_metric_of_two_batches():
    metric = METRICS.build(dict(type='mmrank.TopKMetric', k=(2, 1)))
    for rows, cols, top in (([0, 0, 1], [3, 4, 0], [[3, 4], [1, 2]]), ([0], [5], [[0, 5]])):
        metric.process(
            dict(true=dict(rows=torch.tensor(rows), cols=torch.tensor(cols))),
            [dict(top_k=torch.tensor(x)) for x in top],
        )
    figures = metric.evaluate(size=3)
    expected = {
        'top_k/precision@1': 100 / 3,
        'top_k/precision@2': 50,
        'top_k/recall@1': 50 / 3,
        'top_k/recall@2': 200 / 3,
        'top_k/ndcg@1': 100 / 3,
        'top_k/ndcg@2': 100 * (1 + 1 / log2(3)) / 3,
    }
    assert figures == pytest.approx(expected)


def test_an_entity_without_held_out_pairs_is_refused():
    batch = dict(true=dict(rows=torch.tensor([1]), cols=torch.tensor([1])))
    with pytest.raises(ValueError, match='left entity 0'):
        TopKMetric(k=(1,)).process(batch, [dict(top_k=torch.arange(3))] * 2)
