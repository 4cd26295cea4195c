"""SOAP, MAUC, LDAM and class balance against loops over their definitions."""

import itertools
import math

import pytest
import torch
from score_lists import joined, mauc_losses, soap_losses
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mmrank.functional import auc_loss, average_precision, split_lists
from mmrank.losses.auc.soap import soap_of_ranks, surrogate_ranks
from mmrank.losses.pairs.surrogates import SquaredHinge
from mmrank.losses.pointwise.class_balanced_ce import effective_number_weights
from mmrank.losses.pointwise.ldam import ldam_margins, ldam_sigmoid, ldam_softmax
from mmrank.state.positive_history import moving_ranks


def randn(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def hinge(x, margin):
    return max(margin - x, 0) ** 2


@pytest.mark.parametrize('margin', [0.3, 1.0, 4.0])
def test_surrogate_ranks_are_means_over_the_list(margin):
    pos, neg = randn(4).tolist(), randn(7, seed=1).tolist()
    got = surrogate_ranks(
        split_lists(*joined(*map(torch.tensor, (pos, neg)))), SquaredHinge(margin)
    )
    every = pos + neg
    for i, s in enumerate(pos):
        among = sum(hinge(s - x, margin) for x in pos) / len(every)
        total = sum(hinge(s - x, margin) for x in every) / len(every)
        # Ours is that of the paper over margin^2.
        assert got[0, 0, i].item() == pytest.approx(among / margin**2, rel=1e-6)
        assert got[1, 0, i].item() == pytest.approx(total / margin**2, rel=1e-6)


def test_without_a_past_soap_is_the_gradient_of_its_value():
    pos, neg = randn(5).requires_grad_(), randn(9, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda p, n: soap_losses(*joined(p, n), margin=0.8), (pos, neg))


def test_soap_gradient_is_that_of_the_paper():
    """Equation 6 by a double loop, with u that is not g."""
    pos, neg = randn(3), randn(5, seed=1)
    u = torch.tensor([[0.2, 0.5, 0.1], [0.9, 0.7, 1.3]]).double()
    scores = torch.cat([pos, neg]).requires_grad_()
    total = 0.0
    for i in range(3):
        for s in range(8):
            weight = (u[0, i] - (s < 3) * u[1, i]) / u[1, i] ** 2
            x = scores[i] - scores[s]
            total = total + weight * (1 - x).clamp(min=0) ** 2 / 8 / 3
    (expected,) = torch.autograd.grad(total, scores)
    lists = split_lists(scores, torch.arange(8) < 3)
    batch = surrogate_ranks(lists, SquaredHinge(1.0))
    loss = soap_of_ranks(batch, u[:, None], lists.pos_mask)
    assert loss.item() == pytest.approx((1 - u[0] / u[1]).mean().item())
    (got,) = torch.autograd.grad(loss.sum(), scores)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


def test_soap_of_a_tiny_margin_and_separated_scores():
    """Well separated: the loss orders rankings as average precision does."""
    good = soap_losses(torch.tensor([9.0, 8.0, 1.0, 2.0]), torch.arange(4) < 2)
    bad = soap_losses(torch.tensor([1.0, 2.0, 9.0, 8.0]), torch.arange(4) < 2)
    assert good.item() == 0
    assert bad.item() > 0.9


def test_soap_edges():
    some = torch.randn(3, requires_grad=True)
    first = torch.arange(3) < 1
    loss = soap_losses(some, torch.zeros(3))
    assert loss.item() == 0
    loss.backward()
    assert some.grad.abs().sum() == 0
    assert soap_losses(torch.randn(1), torch.ones(1)).item() == 0  # nothing above it
    assert soap_losses(torch.zeros(4), torch.arange(4) < 2).item() == 0.5  # ties
    known = soap_losses(torch.tensor([2.0, 0.0, 0.0, -3.0]), torch.arange(4) < 2)
    assert known.item() == pytest.approx(0.0455, abs=1e-4)
    assert soap_losses(torch.tensor([float('nan'), 0, 0]), first).isnan()
    far = soap_losses(torch.tensor([-float('inf'), 0, 0]), first)
    assert far.item() == pytest.approx(1)
    with pytest.raises(ValueError, match='tau must be'):
        soap_losses(some, first, margin=0.0)


def test_moving_ranks():
    old = torch.tensor([[0.0, 0.2, 0.2], [0.0, 0.4, 0.4]])
    new = torch.tensor([[0.5, 0.6, math.nan], [1.0, 0.8, 1.0]])
    got = moving_ranks(old, new, 0.25)
    expected = [[0.5, 0.3, 0.2], [1.0, 0.5, 0.4]]
    torch.testing.assert_close(got, torch.tensor(expected).double())


def mauc_by_loops(scores, labels, classes, loss):
    """One against one; label C = none, a class of negatives alone."""
    per_class = []
    for i in range(classes):
        means = []
        for j in range(classes + 1):
            pairs = [
                loss(scores[x][i] - scores[y][i])
                for x in range(len(labels))
                for y in range(len(labels))
                if labels[x] == i and labels[y] == j and i != j
            ]
            if pairs:
                means.append(sum(pairs) / len(pairs))
        per_class.append(sum(means) / len(means) if means else None)
    return per_class


MAUC = {
    'square': lambda x: (1 - x / 0.7) ** 2,
    'one_sided_huber': lambda x: 1 - 2 * x / 0.7 if x < 0 else max(1 - x / 0.7, 0) ** 2,
}


@pytest.mark.parametrize('surrogate', list(MAUC))
@pytest.mark.parametrize('classes', [1, 2, 4])
def test_mauc_is_the_mean_over_pairs_of_classes(surrogate, classes):
    g = torch.Generator().manual_seed(classes)
    scores = randn(14, classes)
    labels = torch.randint(0, classes + 1, (14,), generator=g)
    one_hot = torch.nn.functional.one_hot(labels, classes + 1)[:, :classes]
    losses = mauc_losses(scores.t(), one_hot.t(), surrogate=surrogate, tau=0.7)
    expected = mauc_by_loops(scores.tolist(), labels.tolist(), classes, MAUC[surrogate])
    for got, want in zip(losses, expected):
        assert got.item() == pytest.approx(want or 0.0, rel=1e-9)


@pytest.mark.parametrize('surrogate', list(MAUC))
def test_mauc_gradient(surrogate):
    scores = randn(3, 11).requires_grad_()
    is_positive = torch.arange(11)[None] % 4 == torch.arange(3)[:, None]
    assert torch.autograd.gradcheck(
        lambda x: mauc_losses(x, is_positive, surrogate=surrogate), scores
    )


def test_binary_mauc_is_auc():
    scores, labels = randn(1, 60), randn(1, 60, seed=1) > 0.6
    kwargs = dict(surrogate='one_sided_huber', tau=0.3)
    torch.testing.assert_close(
        mauc_losses(scores, labels, **kwargs), auc_loss(scores, labels, **kwargs)
    )
    # Two scores, so that every swapped pair counts as much: AUC itself.
    x = (scores > 0).double()
    loss = mauc_losses(x, labels, surrogate='square', tau=1.0).item()
    pairs = x[labels][:, None] - x[~labels]
    assert loss == pytest.approx(((1 - pairs) ** 2).mean().item())
    assert mauc_losses(torch.zeros(1, 60), labels).item() == 1


def test_mauc_several_labels_and_left_out_entries():
    """A sample is no negative of its own classes; what is out stays out."""
    scores = randn(2, 5)
    positive = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 0, 0]]).bool()
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[:, 4] = False
    scores[:, 4] = torch.nan
    losses = mauc_losses(scores, positive, mask=mask)
    a, b = scores

    def mean(pos, neg):
        pairs = itertools.product(pos, neg)
        return sum((1 - (x - y)) ** 2 for x, y in pairs) / len(pos) / len(neg)

    # Class 0 against class 1 (sample 2 alone) and against none (sample 3).
    torch.testing.assert_close(losses[0], (mean(a[:2], a[2:3]) + mean(a[:2], a[3:4])) / 2)
    pos = [b[0], b[2]]
    torch.testing.assert_close(losses[1], (mean(pos, b[1:2]) + mean(pos, b[3:4])) / 2)


def test_mauc_edges():
    empty = torch.zeros(3, 0, requires_grad=True)
    assert mauc_losses(empty, torch.zeros(3, 0)).tolist() == [0, 0, 0]
    assert mauc_losses(torch.randn(2, 4), torch.tensor([[1] * 4, [0] * 4])).tolist() == [0, 0]
    with pytest.raises(ValueError, match="surrogate='hinge' is unknown"):
        mauc_losses(empty, empty.bool(), surrogate='hinge')
    with pytest.raises(TypeError, match='call scores.float'):
        mauc_losses(torch.zeros(1, 2).long(), torch.zeros(1, 2).bool())
    with pytest.raises(ValueError, match='is_positive must have shape'):
        mauc_losses(torch.zeros(2, 3), torch.zeros(3, 2).bool())
    with pytest.raises(ValueError, match='mask must have shape'):
        mauc_losses(empty, empty.bool(), mask=torch.ones(3, 1).bool())


def test_effective_number():
    counts = torch.tensor([5000, 500, 0, 50])
    got = effective_number_weights(counts, 0.999)
    raw = [(1 - 0.999) / (1 - 0.999**n) if n else 0.0 for n in counts.tolist()]
    expected = [3 * w / sum(raw) for w in raw]
    assert got.tolist() == pytest.approx(expected, rel=1e-9)
    assert effective_number_weights(counts, 0.0).tolist() == [1, 1, 0, 1]
    near_one = effective_number_weights(counts, 1 - 1e-12)
    inverse = torch.tensor([1 / 5000, 1 / 500, 0, 1 / 50]).double()
    torch.testing.assert_close(near_one, 3 * inverse / inverse.sum(), rtol=1e-4, atol=0)
    with pytest.raises(ValueError, match='beta must be in'):
        effective_number_weights(counts, 1.0)


def test_margins():
    got = ldam_margins(torch.tensor([10000, 16, 0]), 0.4)
    assert got.tolist() == pytest.approx([0.4 * (16 / 1e4) ** 0.25, 0.4, 0.4])
    with pytest.raises(ValueError, match='max_margin must be'):
        ldam_margins(torch.ones(2), -1.0)


def test_ldam_is_the_authors_code():
    """Cross-entropy of the scores with the margin taken off their label."""
    scores, labels = randn(8, 3), torch.arange(8) % 3
    margins = ldam_margins(torch.tensor([100, 10, 5]))
    lowered = scores.clone()
    for row, label in enumerate(labels.tolist()):
        lowered[row, label] -= margins[label]
    torch.testing.assert_close(
        ldam_softmax(scores, labels, margins, 30.0),
        cross_entropy(30 * lowered, labels, reduction='none'),
    )


def test_binary_ldam_is_that_of_two_classes():
    score, positive = randn(9, 1), torch.arange(9)[:, None] % 3 == 0
    margins = ldam_margins(torch.tensor([[90.0, 10.0]]))
    two = torch.cat([torch.zeros_like(score), score], 1)
    torch.testing.assert_close(
        ldam_sigmoid(score, positive, margins, 2.0)[:, 0],
        ldam_softmax(two, positive[:, 0].long(), margins[0], 2.0),
    )
    torch.testing.assert_close(
        ldam_sigmoid(score, positive, 0 * margins, 1.0),
        binary_cross_entropy_with_logits(score, positive.double(), reduction='none'),
    )
    assert torch.autograd.gradcheck(
        lambda x: ldam_sigmoid(x, positive, margins, 2.0), score.requires_grad_()
    )


def test_descending_soap_raises_average_precision():
    scores = randn(30)
    positive = torch.arange(30) % 6 == 0
    before = average_precision(scores, positive)
    moved = scores.clone().requires_grad_()
    for _ in range(60):
        loss = soap_losses(moved, positive)
        (grad,) = torch.autograd.grad(loss, moved)
        moved = (moved - 2 * grad).detach().requires_grad_()
    assert average_precision(moved, positive) > before + 0.3
