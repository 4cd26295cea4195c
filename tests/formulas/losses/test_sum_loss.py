"""A sum of ranking losses: its parts, weighted and added, and their shares of the gradient."""

import copy

import pytest
import torch
from mmengine.config import ConfigDict
from subjects import assert_same_gradients, call_rows, made_up, rows_with_background
from torch import nn

from mmrank.losses import AUCLoss, EmbeddingLoss, RankSortLoss, SmoothAPLoss, StableAPLoss, SumLoss
from mmrank.registry import MODELS

CLASSES = 3
PARTS = [
    dict(type='mmrank.StableAPLoss', mode='per_class', momentum=0.3),
    dict(type='mmrank.SmoothAPLoss', tau=0.5, loss_weight=2.0),
    dict(type='mmrank.DRLoss'),
    dict(type='mmrank.APLoss'),
    dict(type='mmrank.RankSortLoss'),
    dict(type='mmrank.SOAPLoss', num_samples=40),
]
WEIGHTS = [1.0, 0.5, 0.0, 3.0, 2.0, 0.3]
AP = dict(type='mmrank.StableAPLoss')
AUC = dict(type='mmrank.AUCLoss', tau=1.0)


def build(*losses, **kwargs):
    config = dict(type='mmrank.SumLoss', losses=list(losses), **kwargs)
    return MODELS.build(ConfigDict(copy.deepcopy(config)))


def batch(seed=0):
    scores, target = rows_with_background(40, CLASSES, seed)
    return scores.requires_grad_(), target


def test_value_and_gradient_are_the_weighted_sum():
    total = build(*PARTS, weights=WEIGHTS, num_classes=CLASSES, loss_weight=0.7)
    alone = [MODELS.build(dict(p, num_classes=CLASSES)) for p in PARTS]
    for step in range(3):
        leaf, target = batch(seed=step)
        weight = (torch.arange(len(target)) % 5 > 0).double()
        rows = leaf, target, torch.arange(40), torch.rand(40)
        parts = [0.7 * w * call_rows(loss, *rows, weight=weight) for w, loss in zip(WEIGHTS, alone)]
        found = call_rows(total, *rows, weight=weight)
        assert_same_gradients(found, sum(parts), [leaf])
        assert list(total.diagnostics) == [f'part_{i}' for i in range(6)]
        noted = torch.stack([*total.diagnostics.values()])
        torch.testing.assert_close(noted, torch.stack(parts).detach())
    assert total.box_input == 'quality'
    assert (total.keeps_samples, total.num_samples) == (True, 40)
    assert not build(AP).keeps_samples
    for i, loss in enumerate(alone):
        # State and diagnostics of a part are those of the loss alone.
        for name, value in loss.state_dict().items():
            assert torch.equal(total.state_dict()[f'losses.{i}.{name}'], value)
        assert loss.diagnostics == total.losses[i].diagnostics


@pytest.mark.parametrize(
    'peer',
    [
        dict(type='NTXentLoss', temperature=0.1),
        dict(type='ProxyAnchorLoss', num_classes=4, embedding_size=5),
    ],
    ids=lambda x: x['type'],
)
def test_losses_of_embeddings_alone_are_parts(peer):
    pml = dict(type='mmrank.PMLLoss', loss=peer)
    total = EmbeddingLoss(build(AP, pml, weights=[0.9, 0.1]))
    embeddings = made_up(20, 5).requires_grad_()
    labels = torch.arange(20) % 4
    first, second = (EmbeddingLoss(copy.deepcopy(x)) for x in total.loss.losses)
    expected = 0.9 * first(embeddings, labels) + 0.1 * second(embeddings, labels)
    assert torch.equal(total(embeddings, labels), expected)
    # Proxies reach the optimiser, and have a gradient.
    total(embeddings, labels).backward()
    assert len([*total.parameters()]) == (peer['type'] == 'ProxyAnchorLoss')
    assert all(x.grad.abs().sum() > 0 for x in total.parameters())
    with pytest.raises(TypeError, match=r'losses\[1\] \(PMLLoss\) takes embeddings, not scores'):
        total.loss(torch.randn(6), torch.tensor([1, 0, 0, 1, 0, 0]))


def test_modules_serve_as_parts():
    parts = [StableAPLoss(num_classes=CLASSES), AUCLoss(tau=1.0)]
    total = SumLoss(nn.ModuleList(parts), weights=(1, 2))
    assert [*total.losses] == parts
    assert total.num_columns == CLASSES
    assert total(*batch()).dtype == torch.float64
    nested = SumLoss([total, SmoothAPLoss(tau=1.0)])
    assert 'losses.0.losses.0.mean_positive.mean' in nested.state_dict()
    nested(*batch()).backward()


def test_settings_of_the_head_reach_the_parts():
    total = build(
        dict(AP, mode='per_class'),
        AUC,
        dict(type='mmrank.MAUCLoss'),
        num_classes=CLASSES,
        use_sigmoid=True,
    )
    assert [x.num_columns for x in total.losses] == [CLASSES] * 3
    assert total.losses[0].mean_positive.mean.shape == (CLASSES,)
    assert total.get_cls_channels(CLASSES) == CLASSES
    assert total.losses[1].roi_classes == CLASSES
    assert total.scope == 'global'
    assert build(dict(AUC, scope='local')).scope == 'local'


def test_scores_are_centred_as_the_first_part_says():
    total = build(dict(type='mmrank.DRLoss'), AUC, AP, dict(AP))
    total.losses[2].mean_positive.mean.fill_(2.0)
    assert torch.equal(total.logit_centre(), torch.tensor([2.0]))
    total.get_cls_channels(CLASSES)
    shown = total.get_activation(torch.full((1, CLASSES), 2.0))
    assert shown.tolist() == [[0.5] * (CLASSES + 1)]
    assert build(AUC).logit_centre() is None


def test_boxes_that_a_part_requires_or_none_takes():
    leaf, target = batch()
    with pytest.raises(ValueError, match='requires the boxes'):
        SumLoss([RankSortLoss(), AUCLoss(tau=1.0)])(leaf, target)
    with pytest.raises(ValueError, match=r'no part .* takes quality'):
        build(AUC)(leaf, target, quality=torch.rand(40))


def test_class_counts():
    total = build(dict(type='mmrank.SOPRCLoss', mode='per_class', prior='counts'), num_classes=3)
    assert total.wants_class_counts
    assert not build(AUC).wants_class_counts
    total.set_class_counts([5, 3, 2], 20)
    assert total.losses[0].prior.of(3, None).flatten().tolist() == [0.25, 0.15, 0.1]
