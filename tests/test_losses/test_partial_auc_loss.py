"""Partial AUC against the double loop of its definition."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_batches import with_gradient
from score_lists import one_sided_huber

from mmrank.losses import PartialAUCLoss
from mmrank.losses.auc import partial_auc

scores = st.lists(st.one_of(st.sampled_from([0.0, 0.5, -0.5]), st.floats(-3, 3)), max_size=12)
SHARES = [0.05, 0.1, 0.3, 0.5, 0.75, 1.0]


def of_list(scores, labels, max_fpr, tau):
    """The mean over the pairs of the positives and the highest negatives, ties of the last too."""
    pos, neg = scores[labels > 0], scores[labels == 0]
    if not len(pos) or not len(neg):
        return 0 * scores.sum()
    number = math.ceil(max_fpr * len(neg) - 1e-9)
    hard = neg[neg >= neg.sort(descending=True).values[number - 1]]
    return one_sided_huber(pos[:, None] - hard, tau).mean()


def batch(n=40, classes=3, seed=0, ties=False):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, classes, generator=g, dtype=torch.float64)
    labels = (torch.rand(n, classes, generator=g) < 0.3).long()
    return (2 * scores).round() / 2 if ties else scores, labels


def reference(scores, labels, max_fpr, tau, mode):
    if mode == 'flatten':
        return of_list(scores.flatten(), labels.flatten(), max_fpr, tau)
    columns = zip(scores.t(), labels.t())
    return torch.stack([of_list(*x, max_fpr, tau) for x in columns]).mean()


@given(scores, scores, st.sampled_from(SHARES), st.sampled_from([0.5, 2.0]))
def test_any_list(pos, neg, max_fpr, tau):
    values = torch.tensor(pos + neg, dtype=torch.float64)
    labels = (torch.arange(len(values)) < len(pos)).long()
    got = with_gradient(lambda x: PartialAUCLoss(max_fpr, tau)(x, labels), values)
    expected = with_gradient(lambda x: of_list(x, labels, max_fpr, tau), values)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize('ties', [False, True])
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
@pytest.mark.parametrize('max_fpr', SHARES)
def test_equals_the_definition(max_fpr, mode, ties, monkeypatch):
    values, labels = batch(ties=ties)
    loss = PartialAUCLoss(max_fpr, 0.7, mode=mode)
    expected = with_gradient(lambda x: reference(x, labels, max_fpr, 0.7, mode), values)
    # Also where a sample of the scores bounds the search.
    for size in (partial_auc._SAMPLE, 30):
        monkeypatch.setattr(partial_auc, '_SAMPLE', size)
        got = with_gradient(lambda x: loss(x, labels), values)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_a_sample_unlike_the_rest_finds_the_same(monkeypatch):
    """Only the first of the scores that are in the sample are high."""
    monkeypatch.setattr(partial_auc, '_SAMPLE', 20)
    values, labels = batch(100, 1)
    values[:: 100 // 20 + 1] += 9
    got = with_gradient(lambda x: PartialAUCLoss(0.3)(x, labels), values)
    expected = with_gradient(lambda x: reference(x, labels, 0.3, 1.0, 'flatten'), values)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
