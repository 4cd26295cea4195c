"""The retriever by itself; configs of it are trained in test_classifier_configs.py."""

import copy

import pytest
import torch
from labelled import data_samples
from mmengine.registry import MODELS
from small_retriever import CLASSES, build_retriever
from torch.nn.functional import normalize

pytest.importorskip('mmpretrain')


def _images(n):
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, 16, 16, generator=g)


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


def test_a_model_without_a_head_gives_features_alone():
    model = MODELS.build(
        dict(type='mmrank.EmbeddingRetriever', image_encoder=dict(type='mmrank.SmallConvNet'))
    )
    with pytest.raises(ValueError, match='no head'):
        model(torch.zeros(2, 1, 28, 28), _samples(2), mode='loss')
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 64, 1, 1)
