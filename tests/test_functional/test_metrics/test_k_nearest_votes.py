"""Votes of neighbours against a loop."""

import math

import pytest
import torch

from mmrank.functional import k_nearest_votes, unit_rows


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


def test_empty_bank_and_no_queries():
    queries, bank, labels = data()
    assert not k_nearest_votes(queries, bank[:0], labels[:0], 4).any()
    assert k_nearest_votes(queries[:0], bank, labels, 4).shape == (0, 4)


def test_bad_input_is_refused():
    queries, bank, labels = data()
    with pytest.raises(ValueError, match='tau must be > 0'):
        k_nearest_votes(queries, bank, labels, 4, tau=0)
    with pytest.raises(ValueError, match='k must be at least 1'):
        k_nearest_votes(queries, bank, labels, 4, k=0)
    with pytest.raises(ValueError, match='bank_labels'):
        k_nearest_votes(queries, bank, labels[:-1], 4)
