"""``class_weight`` of losses of scores: a positive of a class counts as often as it says."""

import pytest
import torch
from registered_losses import CLASSES, build, weighted_cases

from mmrank.errors import UserError
from mmrank.losses import APLoss, LogitAdjustedCELoss

CLASS_WEIGHT = [0.5, 2.0, 1.25]
CASES = [x for x in weighted_cases() if x.name != 'SumLoss' and x.details.use_sigmoid]
every_loss = pytest.mark.parametrize('case', CASES, ids=str)


def weighted(case, **more):
    settings = dict(case.settings, num_classes=CLASSES, **more)
    return build(case.name, settings)


@every_loss
def test_positives_of_a_class_count_so_often(case):
    batch = case.batch()
    *rest, labels, _, weight = batch.fixed
    loss = weighted(case, class_weight=CLASS_WEIGHT)
    found = batch.gradients(loss)
    if getattr(loss, 'mode', None) == 'per_class':
        alone = [batch.of(weighted(case, class_weight=torch.eye(3)[i].tolist())) for i in range(3)]
        counted = torch.tensor(CLASS_WEIGHT) * torch.tensor([x != 0 for x in alone])
        mean = (counted * torch.stack(alone).detach()).sum() / counted.sum()
        if case.name not in ('StableAPLoss', 'SOPRCLoss'):  # They have a term of all lists.
            torch.testing.assert_close(found[0], mean.to(found[0].dtype), rtol=1e-6, atol=1e-8)
        return
    entries = weight[:, None].repeat(1, CLASSES)
    has_class = labels < CLASSES
    rows = has_class.nonzero()[:, 0]
    entries[rows, labels[rows]] *= torch.tensor(CLASS_WEIGHT).double()[labels[rows]]
    plain = batch.with_fixed([*rest, labels, batch.fixed[-2], entries])
    torch.testing.assert_close(found, plain.gradients(weighted(case)))


@pytest.mark.parametrize('use_sigmoid', [True, False])
def test_of_a_pointwise_loss(use_sigmoid):
    settings = dict(class_counts=[5, 3, 2], num_classes=3, use_sigmoid=use_sigmoid)
    scores = torch.randn(6, 3)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    weight = torch.tensor(CLASS_WEIGHT)[labels]
    if use_sigmoid:
        weight = torch.where(torch.eye(3)[labels] > 0, torch.tensor(CLASS_WEIGHT), 1.0)
    found = LogitAdjustedCELoss(class_weight=CLASS_WEIGHT, **settings)(scores, labels)
    torch.testing.assert_close(found, LogitAdjustedCELoss(**settings)(scores, labels, weight))


def test_auto_is_the_inverse_of_the_share():
    counts = [90, 9, 1]
    loss = APLoss(3, class_weight='auto')
    with pytest.raises(RuntimeError, match='ClassCountsHook'):
        loss(torch.randn(4, 3), torch.tensor([0, 1, 2, 3]))
    loss.class_weights.set_class_counts(counts, 500)
    weight = loss.class_weights.of(3)
    # Every class has the same share, and the positives have the mean 1.
    torch.testing.assert_close(weight * torch.tensor(counts), torch.full((3,), 100 / 3).double())
    loss = APLoss(3, class_weight=('auto', 0.5))
    loss.class_weights.set_class_counts([4, 0, 1])
    weight = loss.class_weights.of(3)
    assert weight[2] == 2 * weight[0]
    assert 4 * weight[0] + weight[2] == pytest.approx(5)


def test_classes_by_index_and_by_name(monkeypatch):
    loss = APLoss(3, class_weight={2: 5.0})
    assert loss.class_weights.of(3).tolist() == [1, 1, 5]
    loss = APLoss(class_weight={'platelet': 5.0})
    names = dict(classes=('red', 'white', 'platelet'))
    monkeypatch.setattr(loss.class_weights.training_set, 'metainfo', lambda: names)
    assert loss.class_weights.of(3).tolist() == [1, 1, 5]
    loss = APLoss(class_weight={'platelets': 5.0})
    monkeypatch.setattr(loss.class_weights.training_set, 'metainfo', lambda: names)
    with pytest.raises(UserError, match="'platelets', which is not a class. Fix: 'platelet'"):
        loss(torch.randn(4, 3), torch.tensor([0, 1, 2, 3]))
