"""SupAP and ROADMAP, query by query."""

import pytest
import torch
from random_batches import made_up, with_gradient

from mmrank.functional import hap_loss
from mmrank.losses import EmbeddingLoss, ROADMAPLoss, SupAPLoss

TAU = 0.01
LABELS = torch.arange(24) % 6


def images(noise):
    centres = made_up(6, 8, seed=1).double()
    return centres[LABELS] + noise * made_up(24, 8).double()


def step(z):
    """The paper's H-: a sigmoid below 0, 1/2 more up to 0.05, then a line of slope 100."""
    end = torch.sigmoid(torch.tensor(0.05 / TAU, dtype=torch.float64)) + 0.5
    near = torch.sigmoid(z / TAU) + 0.5 * (z > 0)
    return torch.where(z > 0.05, end + 100 * (z - 0.05), near)


def sup_ap(scores, is_positive):
    pos, neg = scores[is_positive], scores[~is_positive]
    among = (pos >= pos[:, None]).sum(1)
    return 1 - (among / (among + step(neg - pos[:, None]).sum(1))).mean()


def lists(x):
    unit = torch.nn.functional.normalize(x)
    for i in range(24):
        others = torch.arange(24) != i
        yield (unit @ unit[i])[others], (LABELS[i] == LABELS)[others]


def contrastive(x):
    pairs = [*lists(x)]
    scores = torch.cat([s for s, _ in pairs])
    same = torch.cat([p for _, p in pairs])
    parts = (0.9 - scores[same]).relu(), (scores[~same] - 0.6).relu()
    return sum(part.sum() / (part > 0).sum().clamp(min=1) for part in parts)


@pytest.mark.parametrize('noise', [0.1, 0.5, 1.0])
@pytest.mark.parametrize('lam', [0.0, 0.3, 1.0])
def test_roadmap(noise, lam):
    x = images(noise)

    def formula(x):
        ranked = torch.stack([sup_ap(*one) for one in lists(x)]).mean()
        return (1 - lam) * ranked + lam * contrastive(x)

    expected = with_gradient(formula, x)
    found = with_gradient(lambda x: EmbeddingLoss(ROADMAPLoss(lam))(x, LABELS), x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if lam == 0:
        found = with_gradient(lambda x: EmbeddingLoss(SupAPLoss())(x, LABELS), x)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_sup_ap_is_h_ap_of_the_finest_level():
    x = images(1.0)
    levels = torch.stack([LABELS // 3, LABELS], 1)
    loss = EmbeddingLoss(SupAPLoss())
    assert loss(x, levels) == loss(x, LABELS)
    scores, labels = made_up(30), torch.arange(30) % 3 == 0
    torch.testing.assert_close(SupAPLoss()(scores, labels), hap_loss(scores, labels.long()))
    with pytest.raises(ValueError, match='must be 0 and 1'):
        SupAPLoss()(scores, torch.arange(30) % 3)


def test_weights_are_copies_in_the_margins_too():
    x = images(0.8)
    weight = 1.0 + torch.arange(24) % 2
    lam = dict(lam=1.0, mode='flatten')
    scores = torch.nn.functional.normalize(x)[:, 0].repeat(2)
    labels = (torch.arange(48) % 4 == 0).long()
    twice = torch.arange(48).repeat_interleave(weight.repeat(2).long())
    found = ROADMAPLoss(**lam)(scores, labels, weight.repeat(2))
    torch.testing.assert_close(found, ROADMAPLoss(**lam)(scores[twice], labels[twice]))
