"""Losses of documents with levels: each by its formula, list by list, and pair by pair."""

import math

import pytest
import torch
from random_batches import made_up, with_gradient

from mmrank.errors import UserError
from mmrank.functional import hap_loss, ndcg_loss
from mmrank.losses import EmbeddingLoss, HAPLoss, LambdaLoss, ListNetLoss, NDCGLoss

SIZES = [5, 1, 9, 3, 2]
GROUP = torch.arange(5).repeat_interleave(torch.tensor(SIZES))
FACTORS = {'lambdarank': (0, 1), 'ndcg_loss2': (1, 0), 'ndcg_loss2++': (10, 1)}


def documents(ties=False):
    scores = made_up(20).double()
    levels = torch.randint(4, (20,), generator=torch.Generator().manual_seed(1))
    levels[GROUP == 3] = 0  # nothing to find
    return (4 * scores).round() / 4 if ties else scores, levels


def lambda_loss(scores, levels, scheme, tau):
    """Every pair of a list; among equal scores the lower level ranks first."""
    n = len(scores)
    keys = [*zip((-scores).tolist(), levels.tolist())]
    order = sorted(keys)
    ranks = [(2 * order.index(key) + order.count(key) + 1) / 2 for key in keys]
    best = sum(
        (2**level - 1) / math.log2(2 + place)
        for place, level in enumerate(sorted(levels.tolist(), reverse=True))
    )
    by_distance, by_discount = FACTORS[scheme]
    total = 0 * scores.sum()
    for i in range(n):
        for j in range(n):
            if levels[i] <= levels[j]:
                continue
            d = abs(ranks[i] - ranks[j])
            delta = abs(1 / math.log2(1 + d) - 1 / math.log2(2 + d))
            rho = abs(1 / math.log2(1 + ranks[i]) - 1 / math.log2(1 + ranks[j]))
            gain = (2 ** int(levels[i]) - 2 ** int(levels[j])) / best
            logistic = torch.log2(1 + torch.exp((scores[j] - scores[i]) / tau))
            total = total + (by_distance * delta + by_discount * rho) * gain * logistic
    return total


def list_net(scores, levels):
    target = levels.double().exp() / levels.double().exp().sum()
    return -(target * (scores - scores.exp().sum().log())).sum()


def of_lists(function, scores, levels):
    """Mean over the lists that have a positive."""
    lists = zip(scores.split(SIZES), levels.split(SIZES))
    found = [function(s, level) for s, level in lists if level.any()]
    return torch.stack(found).mean()


LOSSES = {
    **{
        scheme: (LambdaLoss(scheme, tau=0.4), lambda *x, name=scheme: lambda_loss(*x, name, 0.4))
        for scheme in FACTORS
    },
    'default': (LambdaLoss(), lambda *x: lambda_loss(*x, 'ndcg_loss2++', 1.0)),
    'list_net': (ListNetLoss(), list_net),
    'ndcg': (NDCGLoss(tau=0.2), lambda *x: ndcg_loss(*x, tau=0.2)),
    'hap': (HAPLoss(tau=0.2, alpha=2.0), lambda *x: hap_loss(*x, tau=0.2, alpha=2.0)),
}


@pytest.mark.parametrize('ties', [False, True])
@pytest.mark.parametrize('name', LOSSES)
def test_lists_of_unlike_lengths(name, ties):
    loss, formula = LOSSES[name]
    scores, levels = documents(ties)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(2))
    found = with_gradient(
        lambda x: loss(x[order], levels[order].float(), group=GROUP[order]), scores
    )
    expected = with_gradient(lambda x: of_lists(formula, x, levels), scores)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert found[1].abs().sum() > 0


@pytest.mark.parametrize('name', LOSSES)
def test_one_list_and_columns(name):
    loss, formula = LOSSES[name]
    scores, levels = documents()
    torch.testing.assert_close(loss(scores, levels), formula(scores, levels))
    table = scores.view(5, 4), levels.view(5, 4)
    torch.testing.assert_close(loss(*table), formula(scores, levels))
    # An entry of weight 0 is absent, whatever its label.
    weight = torch.arange(20) % 3 > 0
    unknown = levels.masked_fill(~weight, -1)
    torch.testing.assert_close(
        loss(scores, unknown, weight), formula(scores[weight], levels[weight])
    )
    for wrong in (unknown, levels + 0.5):
        with pytest.raises(UserError, match='whole numbers >= 0'):
            loss(scores, wrong)


def test_levels_of_images():
    """Family and species, as H-AP takes them."""
    x = made_up(12, 5).double()
    labels = torch.stack([torch.arange(12) % 2, torch.arange(12) % 4], 1)
    unit = torch.nn.functional.normalize(x)
    each = []
    for i in range(12):
        others = torch.arange(12) != i
        shared = (labels[others] == labels[i]).sum(1)
        each.append(lambda_loss((unit @ unit[i])[others], shared, 'ndcg_loss2++', 1.0))
    torch.testing.assert_close(EmbeddingLoss(LambdaLoss())(x, labels), torch.stack(each).mean())


def test_a_document_of_weight_two_is_two_documents():
    scores, levels = documents()
    weight = 1 + (torch.arange(20) % 2).double()
    twice = torch.arange(20).repeat_interleave(weight.long())
    found = ListNetLoss()(scores, levels, weight, group=GROUP)
    expected = ListNetLoss()(scores[twice], levels[twice], group=GROUP[twice])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
