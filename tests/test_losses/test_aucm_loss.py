"""The AUC margin loss against its formula, and as a game that a stock optimiser plays."""

import pytest
import torch
from random_batches import with_gradient

from mmrank.errors import UserError
from mmrank.functional import auroc
from mmrank.losses import AUCMLoss, EmbeddingLoss


def batch(n=30, classes=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, classes, generator=g, dtype=torch.float64)
    labels = (torch.rand(n, classes, generator=g) < 0.3).long()
    return scores, labels


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
    a, b, alpha = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loss = with_numbers(AUCMLoss(3, mode='per_class'), a, b, alpha)
    each = [printed(scores[:, c], labels[:, c], a[c], b[c], alpha[c], 1.0) for c in range(3)]
    torch.testing.assert_close(loss(scores, labels), torch.stack(each).mean())
    classes = torch.arange(30) % 3
    unit = torch.nn.functional.normalize(scores)
    each = []
    for i in range(30):
        others = torch.arange(30) != i
        own = (classes == classes[i]).long()[others]
        c = classes[i]
        each.append(printed((unit @ unit[i])[others], own, a[c], b[c], alpha[c], 1.0))
    found = EmbeddingLoss(loss)(scores, classes)
    torch.testing.assert_close(found, torch.stack(each).mean())
    with pytest.raises(UserError, match='requires num_classes'):
        AUCMLoss(mode='per_class')


def test_the_best_numbers_make_it_the_square_of_the_pairs():
    scores, labels = (x.flatten() for x in batch())
    pos, neg = scores[labels == 1], scores[labels == 0]
    alpha = 1 + neg.mean() - pos.mean()
    assert alpha > 0
    loss = with_numbers(AUCMLoss(), pos.mean(), neg.mean(), alpha)
    found = with_gradient(lambda x: loss(x, labels), scores)
    pairs = with_gradient(
        lambda x: (1 - x[labels == 1][:, None] + x[labels == 0]).square().mean(), scores
    )
    torch.testing.assert_close(found, pairs, rtol=1e-12, atol=1e-12)
    loss(scores, labels).backward()
    assert all(x.grad.abs() < 1e-12 for x in loss.parameters())


@pytest.mark.parametrize('optimizer', [torch.optim.SGD, torch.optim.AdamW])
def test_a_stock_optimizer_plays_the_game(optimizer):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 8, generator=g)
    labels = (x[:, 0] + 0.5 * torch.randn(2000, generator=g) > 1.5).long()
    model = torch.nn.Linear(8, 1)
    loss = AUCMLoss()
    steps = optimizer([*model.parameters(), *loss.parameters()], lr=0.02)
    before = auroc(model(x)[:, 0], labels)
    for _ in range(600):
        steps.zero_grad()
        loss(model(x)[:, 0], labels).backward()
        steps.step()
    scores = model(x)[:, 0].detach()
    assert auroc(scores, labels) > max(0.95, before)
    pos, neg = scores[labels == 1].mean(), scores[labels == 0].mean()
    found = torch.cat([x.detach() for x in loss.parameters()])
    best = torch.stack([pos, neg, (1 + neg - pos).clamp(min=0)])
    if optimizer is torch.optim.SGD:  # Adam circles around the saddle at this rate
        torch.testing.assert_close(found, best, rtol=0, atol=0.001)


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


def test_a_list_of_one_kind_counts_nothing():
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = AUCMLoss()
    for labels in (torch.ones(2), torch.zeros(2)):
        value = loss(scores, labels)
        value.backward()
        assert value == 0
        assert not scores.grad.any()


def test_gradcheck():
    scores, labels = batch(8, 1)
    loss = with_numbers(AUCMLoss(), 0.3, -0.2, 0.5)
    scores = scores[:, 0].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, labels[:, 0]), scores)
