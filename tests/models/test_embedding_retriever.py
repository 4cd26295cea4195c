"""The retriever by itself, and mixed features; test_classifier_configs.py trains configs of it."""

import copy

import pytest
import torch
from labelled import data_samples
from mmengine.registry import MODELS
from small_retriever import CLASSES, DIM, SOPRC, build_retriever
from torch.nn.functional import normalize

pytest.importorskip('mmpretrain')


def _images(n, size=16):
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, size, size, generator=g)


def _samples(n):
    return data_samples([i % CLASSES for i in range(n)])


@pytest.mark.parametrize('given', [True, False])
def test_predicts_features_alone(given):
    model = build_retriever().eval()
    rows = model(_images(3), _samples(3) if given else None, mode='predict')
    expected = normalize(model(_images(3)), dim=1)
    for i, row in enumerate(rows):
        torch.testing.assert_close(row.feature, expected[i])
        assert 'pred_score' not in row
        assert ('gt_label' in row) == given
    # A model without a head gives features alone.
    encoder = dict(type='mmrank.SmallConvNet')
    model = MODELS.build(dict(type='mmrank.EmbeddingRetriever', image_encoder=encoder))
    with pytest.raises(ValueError, match='no head'):
        model(torch.zeros(2, 1, 28, 28), _samples(2), mode='loss')
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 64, 1, 1)


def test_frozen_batch_norms_stay_as_they_are():
    model = build_retriever(freeze_bn=True).train()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 3
    before = copy.deepcopy([m.state_dict() for m in norms])
    model(_images(8), _samples(8), mode='loss')['loss'].backward()
    for layer, state in zip(norms, before):
        assert not layer.training
        assert not any(p.requires_grad for p in layer.parameters())
        for name, value in layer.state_dict().items():
            assert torch.equal(value, state[name])
    assert model.image_encoder[0].blocks[0][0].weight.grad.abs().sum() > 0
    assert build_retriever().train().image_encoder[0].blocks[0][1].training


RESNET = dict(type='mmpretrain.ResNet', depth=18, stem_channels=8, base_channels=8)
MIXUP = dict(type='mmrank.DeepFeatureMixup', backbone=RESNET)


def test_is_the_backbone_but_in_training():
    """Names, weights, initialisation and evaluation are the backbone's."""
    torch.manual_seed(0)
    plain = MODELS.build(copy.deepcopy(RESNET))
    plain.init_weights()
    torch.manual_seed(0)
    mixup = MODELS.build(copy.deepcopy(MIXUP))
    mixup.init_weights()
    assert isinstance(mixup, type(plain))
    weights = mixup.state_dict()
    assert list(weights) == list(plain.state_dict())
    for name, value in plain.state_dict().items():
        assert torch.equal(weights[name], value)
    plain.eval()
    mixup.eval()
    assert torch.equal(mixup(_images(2, 32))[-1], plain(_images(2, 32))[-1])


def mixture_by_hand(z, labels, v, u):
    """Each row with the mean of its class; one that is alone in its class stays as it is."""
    rows = []
    for i, label in enumerate(labels):
        weight = v * (labels == label)
        mean = torch.einsum('b,b...->...', weight / weight.sum(), z)
        rows.append(u * z[i] + (1 - u) * mean)
    return torch.stack(rows)


def test_the_batch_grows_fourfold():
    mixup = MODELS.build(copy.deepcopy(MIXUP))
    mixup.eval()
    entered = []
    for name in ('layer2', 'layer3', 'layer4'):
        getattr(mixup, name).register_forward_hook(
            lambda m, inputs, out: entered.append((inputs[0], out))
        )
    x, labels = _images(6, 32), torch.tensor([0, 1, 0, 2, 1, 1])
    torch.manual_seed(3)
    with mixup.mixing(labels):
        out = mixup(x)[-1]
    assert [len(a) for a, _ in entered] == [6, 12, 24]
    assert len(out) == 24
    torch.manual_seed(3)
    for (_, before), (after, _), copies in zip(entered, entered[1:], (1, 2)):
        v = 1 - torch.rand(len(before))
        expected = mixture_by_hand(before, labels.repeat(copies), v, 0.9)
        assert torch.equal(after[: len(before)], before)
        torch.testing.assert_close(after[len(before) :], expected)
    # Each row is of the class of its original: one in a class of its own is its exact copy.
    alone = out[3::6]
    torch.testing.assert_close(alone, alone[:1].expand_as(alone))
    assert mixup(x)[-1].shape[0] == 6
    with (
        pytest.raises(RuntimeError, match='3 features for 2 labels'),
        mixup.mixing(torch.tensor([0, 1])),
    ):
        mixup(x[:3])


def test_the_retriever_trains_on_the_grown_batch():
    head = dict(
        type='mmrank.RetrievalHead',
        num_classes=CLASSES,
        loss=dict(SOPRC),
        memory=dict(size=40, dim=DIM),
    )
    model = build_retriever(copy.deepcopy(MIXUP), head)
    seen = []
    embedding_loss = model.head.loss_module.embedding_loss
    model.head.loss_module.embedding_loss = lambda b: seen.append(b) or embedding_loss(b)
    images, batch = _images(12, 32), data_samples([i % CLASSES for i in range(12)])
    for _ in range(2):
        model(images, batch, mode='loss')
    assert seen[0].queries.shape == (48, DIM)
    assert seen[0].query_labels.tolist() == [i % CLASSES for i in range(12)] * 4
    # Copies find each other, and originals alone are kept.
    assert seen[0].is_itself[:, :48].equal(torch.eye(48, dtype=torch.bool))
    entries = model.head.memory.entries()
    assert entries.sample_ids[entries.usable].tolist() == [*range(12)] * 2
    # No copy of an image finds an older entry of it.
    older = seen[1].is_itself[:, 48 : 48 + 12]
    assert older.equal(torch.eye(12, dtype=torch.bool).repeat(4, 1))
