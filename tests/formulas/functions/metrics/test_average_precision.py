"""Average precision and the rank of the best positive against their definitions.

Average precision with weights against scikit-learn: test_weights_of_metrics.py.
"""

import pytest
import torch

from mmrank.functional import average_precision, graded_average_precision
from mmrank.metrics import best_positive_rank as place
from mmrank.metrics.best_positive_rank import best_positive_rank


def test_edge_cases():
    ones = torch.ones(4)
    inf = torch.inf
    assert average_precision(ones, torch.zeros(4)).isnan()
    assert average_precision(ones[:0], ones[:0]).isnan()
    assert average_precision(torch.tensor([torch.nan, 1.0]), torch.tensor([0, 1])).isnan()
    assert average_precision(torch.tensor([inf, -inf, 0.0]), torch.tensor([1, 0, 0])) == 1


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_and_strides(dtype):
    scores = torch.tensor([[3.0, 9], [2, 9], [1, 9]], dtype=dtype)[:, 0]
    labels = torch.tensor([[1, 0], [0, 0], [1, 0]])[:, 0]
    got = average_precision(scores, labels)
    assert got.item() == pytest.approx(5 / 6, rel=1e-6)
    assert got.dtype == torch.promote_types(dtype, torch.float32)


def _brute_force_gap(scores, relevance):
    total, pairs = 0.0, list(zip(scores.tolist(), relevance.tolist()))
    for s, u in pairs:
        above = [v for t, v in pairs if t >= s]
        total += sum(min(u, v) for v in above) / len(above)
    return total / sum(u > 0 for _, u in pairs)


@pytest.mark.parametrize('ties', [False, True])
def test_graded_average_precision(ties):
    """Of 0 and 1 it is AP."""
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(40, generator=g, dtype=torch.float64)
    scores = scores.round() if ties else scores
    relevance = torch.rand(40, generator=g, dtype=torch.float64)
    relevance = torch.where(relevance > 0.6, relevance, 0)
    labels = relevance > 0
    found = graded_average_precision(scores, relevance)
    assert found.item() == pytest.approx(_brute_force_gap(scores, relevance), rel=1e-13)
    of_all = graded_average_precision(scores, relevance, num_objects=30)
    torch.testing.assert_close(of_all, found * labels.sum() / 30)
    ap = average_precision(scores, labels)
    assert graded_average_precision(scores, labels.int()).item() == pytest.approx(ap.item())
    assert graded_average_precision(scores, torch.zeros(40)).isnan()
    assert graded_average_precision(scores, torch.zeros(40), num_objects=3) == 0


def loops(queries, gallery, pairs):
    places = []
    for i, query in enumerate(queries):
        positive = {int(c) for r, c in pairs if int(r) == i}
        scores = [float(query @ z) for z in gallery]
        best = max(scores[c] for c in positive)
        places.append(1 + sum(s >= best for c, s in enumerate(scores) if c not in positive))
    return places


@pytest.mark.parametrize('max_scores', [1, 20, 1 << 20])
@pytest.mark.parametrize('ties', [False, True])
def test_equals_loops(monkeypatch, ties, max_scores):
    g = torch.Generator().manual_seed(0)
    queries, gallery = (torch.randn(n, 3, generator=g, dtype=torch.float64) for n in (13, 9))
    if ties:
        queries, gallery = queries.round(), gallery.round()
    mask = torch.rand(13, 9, generator=g) < 0.2
    mask[torch.arange(13), torch.arange(13) % 9] = True
    pairs = mask.nonzero()
    monkeypatch.setattr(place, '_MAX_SCORES', max_scores)
    got = best_positive_rank(queries, gallery, *pairs.t())
    assert got.tolist() == loops(queries, gallery, pairs)


def test_only_positives_and_nothing():
    x = torch.eye(2)
    rows = torch.tensor([0, 0, 1, 1])
    assert best_positive_rank(x, x, rows, torch.tensor([0, 1, 0, 1])).tolist() == [1, 1]
    none = torch.zeros(0, dtype=torch.long)
    assert best_positive_rank(x[:0], x, none, none).tolist() == []
