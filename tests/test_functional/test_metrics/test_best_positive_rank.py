"""Places of the best positive against sorting with loops."""

import pytest
import torch

from mmrank.functional.metrics import best_positive_rank as place
from mmrank.functional.metrics.best_positive_rank import best_positive_rank


def loops(queries, gallery, pairs):
    places = []
    for i, query in enumerate(queries):
        positive = {int(c) for r, c in pairs if int(r) == i}
        scores = [float(query @ z) for z in gallery]
        best = max(scores[c] for c in positive)
        places.append(1 + sum(s >= best for c, s in enumerate(scores) if c not in positive))
    return places


def random_pairs(g, queries, gallery):
    mask = torch.rand(queries, gallery, generator=g) < 0.2
    mask[torch.arange(queries), torch.arange(queries) % gallery] = True
    return mask.nonzero()


@pytest.mark.parametrize('max_scores', [1, 20, 1 << 20])
@pytest.mark.parametrize('ties', [False, True])
def test_equals_loops(monkeypatch, ties, max_scores):
    g = torch.Generator().manual_seed(0)
    queries, gallery = (torch.randn(n, 3, generator=g, dtype=torch.float64) for n in (13, 9))
    if ties:
        queries, gallery = queries.round(), gallery.round()
    pairs = random_pairs(g, 13, 9)
    monkeypatch.setattr(place, '_MAX_SCORES', max_scores)
    got = best_positive_rank(queries, gallery, *pairs.t())
    assert got.tolist() == loops(queries, gallery, pairs)


def test_only_positives_and_nothing():
    x = torch.eye(2)
    rows = torch.tensor([0, 0, 1, 1])
    cols = torch.tensor([0, 1, 0, 1])
    assert best_positive_rank(x, x, rows, cols).tolist() == [1, 1]
    none = torch.zeros(0, dtype=torch.long)
    assert best_positive_rank(x[:0], x, none, none).tolist() == []


def test_half_precision():
    x, own = torch.eye(4, dtype=torch.bfloat16), torch.arange(4)
    assert best_positive_rank(x, x, own, own).tolist() == [1] * 4


@pytest.mark.parametrize(
    ('rows', 'value', 'message'),
    [
        ([0, 1], 0.0, 'name every query'),
        ([0, 2, 1], 0.0, 'rows must ascend'),
        ([0, 1, 2], float('nan'), 'queries hold NaN'),
    ],
)
def test_bad_input_is_refused(rows, value, message):
    queries, gallery = torch.eye(3), torch.eye(3)
    queries[0, 0] += value
    rows = torch.tensor(rows)
    with pytest.raises(ValueError, match=message):
        best_positive_rank(queries, gallery, rows, rows)
