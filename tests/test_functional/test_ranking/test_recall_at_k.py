"""Recall@k against the double loop of its definition, and the mixtures of its batches."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from mmrank.functional import recall_at_k_loss, retrieval_metrics
from mmrank.losses import EmbeddingBatch, EmbeddingLoss, RecallAtKLoss
from mmrank.losses.retrieval import recall_at_k
from mmrank.losses.retrieval.recall_at_k import _with_mixtures

scores = st.lists(st.one_of(st.sampled_from([0.0, 0.5, -0.5]), st.floats(-1, 1)), max_size=6)


def brute_force(pos, neg, ks, tau):
    """Eqs. 4 to 6 of the paper, entry by entry, with the limit and normaliser of the code."""

    def sigmoid(x):
        return 1 / (1 + math.exp(-x)) if x > -600 else 0.0

    if not pos:
        return 0.0
    total = 0.0
    for k in ks:
        found = 0.0
        for i, s in enumerate(pos):
            others = [x for j, x in enumerate(pos) if j != i] + neg
            found += sigmoid(k - 1 - sum(sigmoid((x - s) / tau) for x in others))
        total += min(found, k) / min(k, len(pos))
    return 1 - total / len(ks)


@given(*(scores, scores, st.sampled_from([(1, 2, 4), (3,)]), st.sampled_from([0.01, 0.1, 1.0])))
def test_any_list(pos, neg, ks, tau):
    got = recall_at_k_loss(
        torch.tensor(pos + neg, dtype=torch.float64),
        torch.arange(len(pos) + len(neg)) < len(pos),
        ks=ks,
        tau=tau,
    )
    assert got.item() == pytest.approx(brute_force(pos, neg, ks, tau), abs=1e-12)


def images(classes=6, per_class=4, seed=0):
    """Embeddings, of which the first half of the classes lie apart."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.eye(classes)[labels] * torch.where(labels < classes // 2, 9.0, 0.7)[:, None]
    return normalize((centres + torch.randn(len(labels), classes, generator=g)).double()), labels


def test_small_temperatures_give_the_metrics(monkeypatch):
    """But for a positive of rank k itself, which counts half."""
    monkeypatch.setattr(recall_at_k, 'RANK_TAU', 1e-3)
    x, labels = images()
    figures = retrieval_metrics(x, labels)
    setting = dict(tau=1e-6, mask=~torch.eye(len(x), dtype=torch.bool))
    same = labels[:, None] == labels
    first = 1 - recall_at_k_loss(x @ x.t(), same, ks=(1,), **setting)
    torch.testing.assert_close(first, (figures.first_rank == 1).double() / 2, atol=1e-6, rtol=0)


def test_mixtures_are_queries_and_in_the_gallery():
    x, labels = images(3, 3)
    labels[-1] = 7  # pairs of the classes: 3, 3 and 1
    itself = torch.eye(9, dtype=torch.bool)
    empty = torch.ones(9, 2, dtype=torch.bool)  # slots of a memory without an entry
    batch = EmbeddingBatch(
        *(x, labels, torch.cat([x, x[:2]]), torch.cat([labels, labels[:2]])),
        torch.cat([itself, empty], 1),
    )
    torch.manual_seed(0)
    mixed = _with_mixtures(batch)
    torch.manual_seed(0)
    share = torch.rand(7, 1, dtype=torch.float64)
    first, second = torch.tensor([0, 0, 1, 3, 3, 4, 6]), torch.tensor([1, 2, 2, 4, 5, 5, 7])
    rows = share * x[first] + (1 - share) * x[second]
    torch.testing.assert_close(mixed.queries, torch.cat([x, rows]))
    torch.testing.assert_close(mixed.gallery, torch.cat([batch.gallery, rows]))
    assert mixed.query_labels[9:].tolist() == labels[first].tolist()
    assert mixed.gallery_labels[11:].tolist() == labels[first].tolist()
    # A mixture searches for both of its images, but not for itself or for nothing.
    assert mixed.is_itself[9:, :9].sum() == 0
    assert mixed.is_itself[:, 9:11].all()
    assert torch.equal(mixed.is_itself[:9], torch.cat([batch.is_itself, empty.new_zeros(9, 7)], 1))
    assert torch.equal(mixed.is_itself[9:, 11:], torch.eye(7, dtype=torch.bool))


def test_mixtures_are_of_training_and_of_embeddings():
    x, labels = images()
    loss, plain = EmbeddingLoss(RecallAtKLoss(mixup=True)), EmbeddingLoss(RecallAtKLoss())
    assert loss(x, labels) != plain(x, labels)
    assert loss.eval()(x, labels) == plain(x, labels)
    with pytest.raises(ValueError, match='called with scores. Fix: mixup=False'):
        loss.loss(torch.zeros(4), torch.ones(4))
