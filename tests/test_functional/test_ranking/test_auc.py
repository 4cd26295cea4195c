"""The AUC loss against the double loop of its definition."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import summed_by
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
