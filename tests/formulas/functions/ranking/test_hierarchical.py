"""H-AP and NDCG losses against the double loop of their definition; labels on several levels."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_retriever import samples
from subjects import made_up
from torch.nn.functional import normalize

from mmrank.functional import hap_loss, ndcg_loss
from mmrank.losses import EmbeddingLoss, HAPLoss, NDCGLoss, SmoothAPLoss
from mmrank.models.heads.retrieval_head import RetrievalHead

SETTING = dict(tau=0.1)
entries = st.lists(
    st.tuples(st.one_of(st.sampled_from([0.0, 0.25]), st.floats(-1, 1)), st.integers(0, 3)),
    max_size=8,
)


def step(z, tau, delta=0.05, slope=100.0):
    sigmoid = 1 / (1 + math.exp(-z / tau))
    if z > delta:
        return slope * (z - delta) + 0.5 + 1 / (1 + math.exp(-delta / tau))
    return sigmoid + (0.5 if z > 0 else 0.0)


def ranks(scores, levels):
    """Of each entry, those of lower levels by the step."""
    found = []
    for i, (s, level) in enumerate(zip(scores, levels)):
        rank = 1.0
        for k, (x, other) in enumerate(zip(scores, levels)):
            if k != i:
                rank += step(x - s, **SETTING) if other < level else float(x >= s)
        found.append(rank)
    return found


def share_above(scores, levels, i, k):
    """Of entry k above entry i; a tie with a lower level counts half, as in the rank."""
    if scores[k] == scores[i] and levels[k] < levels[i]:
        return 0.5
    return float(scores[k] >= scores[i])


def hap_by_hand(scores, levels, alpha):
    if not any(levels):
        return 0.0
    u = [(x / max(levels)) ** alpha / levels.count(x) if x else 0.0 for x in levels]
    total = 0.0
    for i, rank in enumerate(ranks(scores, levels)):
        above = [min(u[i], u[k]) * share_above(scores, levels, i, k) for k in range(len(u))]
        total += sum(above) / rank
    return 1 - total / sum(u)


def ndcg_by_hand(scores, levels):
    gains = [2**x - 1 for x in levels]
    got = sum(g / math.log2(1 + r) for g, r in zip(gains, ranks(scores, levels)))
    best = sum(g / math.log2(i + 2) for i, g in enumerate(sorted(gains, reverse=True)))
    return 1 - got / best if best else 0.0


@given(entries, st.sampled_from([0.0, 1.0, 2.5]))
def test_any_list(pairs, alpha):
    scores, levels = [x for x, _ in pairs], [x for _, x in pairs]
    tensors = torch.tensor(scores, dtype=torch.float64), torch.tensor(levels, dtype=torch.long)
    found = hap_loss(*tensors, alpha=alpha, **SETTING).item()
    assert found == pytest.approx(hap_by_hand(scores, levels, alpha), abs=1e-10)
    found = ndcg_loss(*tensors, **SETTING).item()
    assert found == pytest.approx(ndcg_by_hand(scores, levels), abs=1e-10)


@pytest.mark.parametrize(('loss', 'function'), [(HAPLoss, hap_loss), (NDCGLoss, ndcg_loss)])
def test_labels_of_two_levels(loss, function):
    x, fine = normalize(made_up(24, 6).double()), torch.arange(24) % 8
    labels = torch.stack([fine // 4, fine], 1)
    shared = (labels[:, None] == labels).sum(2)
    mask = ~torch.eye(24, dtype=torch.bool)
    expected = function(x @ x.t(), shared, mask=mask, tau=0.1).mean()
    module = EmbeddingLoss(loss(tau=0.1))
    torch.testing.assert_close(module(x, labels), expected)
    head = RetrievalHead(dict(type=f'mmrank.{loss.__name__}', tau=0.1), num_classes=8).double()
    torch.testing.assert_close(head.loss(x, samples(labels))['loss'], expected)
    # One level is the finest alone, as all other losses read it.
    one = module(x, fine)
    assert one != expected
    torch.testing.assert_close(module(x, labels[:, 1:]), one)
    plain = EmbeddingLoss(SmoothAPLoss())
    torch.testing.assert_close(plain(x, labels), plain(x, fine))
