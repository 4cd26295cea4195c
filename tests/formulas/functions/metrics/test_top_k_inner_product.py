"""The largest inner products, and votes of the nearest neighbours."""

import math
from unittest import mock

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mmrank.functional import k_nearest_votes, unit_rows
from mmrank.metrics import top_k_inner_product as place
from mmrank.metrics.top_k_inner_product import top_k_inner_product


def brute_force(left, right, k, excluded):
    result = []
    for i, scores in enumerate(left @ right.t()):
        order = scores.argsort(descending=True).tolist()
        order = [j for j in order if (i, j) not in excluded][:k]
        result.append(order + [-1] * (k - len(order)))
    return result


@given(st.integers(0, 7), st.integers(1, 6), st.integers(1, 8), st.integers(1, 60), st.floats(0, 1))
@example(20, 95, 3, 7 * 95, 0.5)
@example(20, 96, 1, 7 * 96, 0.9)
@example(20, 97, 11, 7 * 97, 0.97)
@example(20, 500, 11, 7 * 500, 0.9)
def test_equals_a_full_sort(rows, cols, k, max_scores, excluded):
    """Many columns are searched by groups, of which some are left out as a whole."""
    g = torch.Generator().manual_seed(cols)
    left = torch.randn(rows, 3, generator=g)
    right = torch.randn(cols, 3, generator=g)
    share = torch.linspace(excluded, 1, rows)[:, None]
    seen = (torch.rand(rows, cols, generator=g) < share).nonzero()
    with mock.patch.object(place, '_MAX_SCORES', max_scores):
        found, best = top_k_inner_product(left, right, k, *seen.unbind(1))
    expected = (left @ right.t()).gather(1, best.clamp(min=0))[best >= 0]
    torch.testing.assert_close(found[best >= 0], expected)
    pairs = {tuple(x) for x in seen.tolist()}
    assert best.tolist() == brute_force(left, right, k, pairs)


def test_nan_comes_first_among_many():
    right = torch.arange(300.0)[:, None]
    right[123] = torch.nan
    none = torch.zeros(0, dtype=torch.long)
    _, best = top_k_inner_product(torch.ones(1, 1), right, 3, none, none)
    assert best.tolist() == [[123, 299, 298]]


def data(seed=0, queries=7, bank=23, dim=5, classes=4):
    g = torch.Generator().manual_seed(seed)
    rows = unit_rows(torch.randn(queries + bank, dim, generator=g, dtype=torch.float64))
    labels = torch.randint(0, classes, (bank,), generator=g)
    return rows[:queries], rows[queries:], labels


def loop(queries, bank, labels, classes, k, tau):
    votes = torch.zeros(len(queries), classes, dtype=torch.float64)
    for i, q in enumerate(queries):
        scores = [float(q @ z) for z in bank]
        order = sorted(range(len(bank)), key=lambda j: -scores[j])[:k]
        for j in order:
            votes[i, labels[j]] += math.exp(scores[j] / tau)
    return votes / votes.sum(1, keepdim=True)


@pytest.mark.parametrize('k', [1, 6, 23, 100])
@pytest.mark.parametrize('tau', [0.07, 3.0])
def test_equals_a_loop(k, tau):
    queries, bank, labels = data()
    got = k_nearest_votes(queries, bank, labels, 4, k, tau)
    torch.testing.assert_close(got, loop(queries, bank, labels, 4, k, tau))


def test_small_temperature_and_half_precision():
    queries, bank, labels = data(2)
    votes = k_nearest_votes(queries.half(), bank.half(), labels, 4, 9, 1e-3)
    assert votes.dtype == torch.float32
    torch.testing.assert_close(votes.sum(1), torch.ones(7))
    scores = queries.half().double() @ bank.half().double().t()
    assert torch.equal(votes.argmax(1), labels[scores.argmax(1)])


def test_nothing_to_find():
    queries, bank, labels = data()
    assert not k_nearest_votes(queries, bank[:0], labels[:0], 4).any()
    assert k_nearest_votes(queries[:0], bank, labels, 4).shape == (0, 4)
