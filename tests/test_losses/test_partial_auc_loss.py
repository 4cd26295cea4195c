"""Partial AUC against the double loop of its definition."""

import math

import pytest
import torch
from gloo_processes import run_on_ranks
from hypothesis import given
from hypothesis import strategies as st
from random_batches import with_gradient
from score_lists import one_sided_huber

from mmrank.losses import AUCLoss, PartialAUCLoss
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


@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_all_negatives_are_the_auc(mode):
    values, labels = batch(ties=True)
    whole = AUCLoss('one_sided_huber', 0.7, mode=mode)
    got = with_gradient(lambda x: PartialAUCLoss(1.0, 0.7, mode=mode)(x, labels), values)
    expected = with_gradient(lambda x: whole(x, labels), values)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_it_is_the_least_of_sopa():
    """Minimised over the threshold of each positive (Zhu et al., 2022, eq. 5)."""
    g = torch.Generator().manual_seed(2)
    pos, neg = torch.randn(6, generator=g).double(), torch.randn(40, generator=g).double()
    losses = one_sided_huber(pos[:, None] - neg, 0.7)
    # It is piecewise linear in the threshold, so the least is at one of the losses.
    thresholds = losses.sort(1).values[..., None]
    above = (losses[:, None] - thresholds).clamp(min=0).mean(2) / 0.25
    least = (thresholds[..., 0] + above).amin(1).mean()
    labels = torch.tensor([1] * 6 + [0] * 40)
    got = PartialAUCLoss(0.25, 0.7)(torch.cat([pos, neg]), labels)
    torch.testing.assert_close(got, least)


def on_rank(rank, mode):
    values, labels = batch(ties=True)
    part = torch.arange(25) if rank == 0 else torch.arange(25, 40)
    loss = PartialAUCLoss(0.2, 0.7, mode=mode)
    return part, with_gradient(lambda x: loss(x, labels[part]), values[part])


@pytest.mark.processes
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_the_negatives_of_all_ranks_compete(mode):
    values, labels = batch(ties=True)
    loss = PartialAUCLoss(0.2, 0.7, mode=mode)
    value, gradient = with_gradient(lambda x: loss(x, labels), values)
    for part, (got, own) in run_on_ranks(on_rank, 2, mode):
        torch.testing.assert_close(got, value, rtol=1e-12, atol=1e-12)
        # DistributedDataParallel averages the gradients of the ranks.
        torch.testing.assert_close(own / 2, gradient[part], rtol=1e-12, atol=1e-12)
