"""Partial AUC by the double loop; the AUC margin loss by its formula, and as a game."""

import math
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import one_sided_huber
from subjects import with_gradient

from mmrank.losses import AUCMLoss, EmbeddingLoss, PartialAUCLoss
from mmrank.losses.auc import partial_auc

scores = st.lists(st.one_of(st.sampled_from([0.0, 0.5, -0.5]), st.floats(-3, 3)), max_size=20)
SHARES = [0.05, 0.1, 0.3, 0.5, 0.75, 1.0]


def of_list(scores, labels, max_fpr, tau):
    """The mean over the pairs of the positives and the highest negatives, ties of the last too."""
    pos, neg = scores[labels > 0], scores[labels == 0]
    if not len(pos) or not len(neg):
        return 0 * scores.sum()
    number = math.ceil(max_fpr * len(neg) - 1e-9)
    hard = neg[neg >= neg.sort(descending=True).values[number - 1]]
    return one_sided_huber(pos[:, None] - hard, tau).mean()


def batch():
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(30, 3, generator=g, dtype=torch.float64)
    return scores, (torch.rand(30, 3, generator=g) < 0.3).long()


@given(scores, scores, st.sampled_from(SHARES), st.sampled_from([0.5, 2.0]), st.booleans())
def test_any_list(pos, neg, max_fpr, tau, has_sample):
    """Also where a sample of the scores bounds the search."""
    values = torch.tensor(pos + neg, dtype=torch.float64)
    labels = (torch.arange(len(values)) < len(pos)).long()
    with mock.patch.object(partial_auc, '_SAMPLE', 3 if has_sample else 2**14):
        got = with_gradient(lambda x: PartialAUCLoss(max_fpr, tau)(x, labels), values)
    expected = with_gradient(lambda x: of_list(x, labels, max_fpr, tau), values)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def with_numbers(loss, a, b, alpha):
    for name, values in zip(('a', 'b', 'alpha'), (a, b, alpha)):
        getattr(loss.double(), name).data.copy_(torch.as_tensor(values))
    return loss


def printed(scores, labels, a, b, alpha, margin):
    """Equation of the paper, with the share p of positives in the batch, over p (1 - p)."""
    positive = labels == 1
    p = positive.double().mean()
    distance = (1 - p) * (scores - a) ** 2 * positive + p * (scores - b) ** 2 * ~positive
    lead = p * (1 - p) * margin + p * scores * ~positive - (1 - p) * scores * positive
    game = distance + 2 * alpha * lead - p * (1 - p) * alpha**2
    return game.mean() / (p * (1 - p))


@pytest.mark.parametrize('margin', [0.5, 1.0])
def test_one_ranking_is_the_formula(margin):
    scores, labels = batch()
    numbers = torch.tensor([0.7, -0.3, 0.4], dtype=torch.float64)
    loss = with_numbers(AUCMLoss(margin=margin), *numbers)
    found = with_gradient(lambda x: loss(x, labels), scores)
    expected = with_gradient(lambda x: printed(x, labels, *numbers, margin), scores)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    # The optimiser gets the gradient of a and b, and that of alpha with the opposite sign.
    leaf = numbers.clone().requires_grad_()
    printed(scores, labels, *leaf, margin).backward()
    loss(scores, labels).backward()
    own = torch.cat([loss.a.grad, loss.b.grad, -loss.alpha.grad])
    torch.testing.assert_close(own, leaf.grad, rtol=1e-12, atol=1e-12)


def test_each_class_and_each_query_has_the_numbers_of_its_class():
    scores, labels = batch()
    numbers = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loss = with_numbers(AUCMLoss(3, mode='per_class'), *numbers)
    each = [printed(scores[:, c], labels[:, c], *numbers[:, c], 1.0) for c in range(3)]
    torch.testing.assert_close(loss(scores, labels), torch.stack(each).mean())
    classes = torch.arange(30) % 3
    unit = torch.nn.functional.normalize(scores)
    each = []
    for i in range(30):
        others = torch.arange(30) != i
        own = (classes == classes[i]).long()[others]
        each.append(printed((unit @ unit[i])[others], own, *numbers[:, classes[i]], 1.0))
    found = EmbeddingLoss(loss)(scores, classes)
    torch.testing.assert_close(found, torch.stack(each).mean())


def test_alpha_stays_above_zero():
    scores = torch.tensor([5.0, -5.0])
    loss = AUCMLoss()
    steps = torch.optim.SGD(loss.parameters(), lr=0.1)
    for _ in range(3):
        loss(scores, torch.tensor([1, 0])).backward()
        assert loss.alpha >= 0
        steps.step()
    # A lead beyond the margin is no loss.
    loss(scores, torch.tensor([1, 0]))
    assert loss.alpha == 0


@pytest.mark.parametrize('labels', [torch.ones(2), torch.zeros(2)])
def test_a_list_of_one_kind_counts_nothing(labels):
    value, slope = with_gradient(AUCMLoss(), torch.tensor([1.0, 2.0]), labels)
    assert value == 0
    assert not slope.any()
