"""The AUC loss against the double loop of its definition."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined, one_sided_huber, summed_by
from sklearn.metrics import roc_auc_score

from mmrank.functional import auc_loss

SURROGATES = ['sigmoid', 'one_sided_huber']
scores = st.lists(st.one_of(st.sampled_from([0.0, 0.5, -0.5]), st.floats(-3, 3)), max_size=7)


def pair_loss(x, surrogate, tau):
    if surrogate == 'sigmoid':
        return 1 / (1 + math.exp(x / tau)) if x < 600 * tau else 0.0
    if x < 0:
        return 1 - 2 * x / tau
    return max(1 - x / tau, 0) ** 2


@pytest.mark.parametrize('surrogate', SURROGATES)
@given(scores, scores, st.sampled_from([0.1, 1.0]))
def test_any_list(surrogate, pos, neg, tau):
    pairs = [pair_loss(s - t, surrogate, tau) for s in pos for t in neg]
    expected = sum(pairs) / len(pairs) if pairs else 0.0
    scores = torch.tensor(pos + neg, dtype=torch.float64)
    is_positive = torch.arange(len(scores)) < len(pos)
    for method in ('auto', 'intervals'):
        with summed_by(method):
            got = auc_loss(scores, is_positive, surrogate=surrogate, tau=tau)
        assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_small_temperature_gives_one_minus_auc():
    g = torch.Generator().manual_seed(1)
    values = torch.randperm(80, generator=g).double()
    positive = torch.rand(80, generator=g) < 0.3
    loss = auc_loss(values, positive, tau=0.01)
    auc = roc_auc_score(positive.numpy(), values.numpy())
    assert 1 - loss.item() == pytest.approx(auc, abs=1e-12)


@given(scores, scores, st.sampled_from([0.1, 0.5, 0.75]), st.sampled_from([0.0, 0.3, 0.8]))
def test_partial_auc_has_the_lowest_positives_and_the_highest_negatives(pos, neg, fpr, tpr):
    pos, neg = sorted(pos), sorted(neg, reverse=True)
    # The share is rounded up, and ties of the last one count.
    low, high = math.ceil((1 - tpr) * len(pos) - 1e-9), math.ceil(fpr * len(neg) - 1e-9)
    hard = [s for s in pos if s <= pos[low - 1]], [t for t in neg if t >= neg[high - 1]]
    pairs = [pair_loss(s - t, 'one_sided_huber', 0.5) for s in hard[0] for t in hard[1]]
    scores = torch.tensor(pos + neg, dtype=torch.float64)
    is_positive = torch.arange(len(scores)) < len(pos)
    got = auc_loss(
        scores, is_positive, surrogate='one_sided_huber', tau=0.5, max_fpr=fpr, min_tpr=tpr
    )
    expected = sum(pairs) / len(pairs) if pairs else 0.0
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_partial_auc_is_the_least_of_sopa():
    """Minimised over the threshold of each positive (Zhu et al., 2022, eq. 5)."""
    g = torch.Generator().manual_seed(2)
    pos, neg = torch.randn(6, generator=g).double(), torch.randn(40, generator=g).double()
    losses = one_sided_huber(pos[:, None] - neg, 0.7)
    # It is piecewise linear in the threshold, so the least is at one of the losses.
    thresholds = losses.sort(1).values[..., None]
    above = (losses[:, None] - thresholds).clamp(min=0).mean(2) / 0.25
    least = (thresholds[..., 0] + above).amin(1).mean()
    got = auc_loss(*joined(pos, neg), surrogate='one_sided_huber', tau=0.7, max_fpr=0.25)
    torch.testing.assert_close(got, least)
