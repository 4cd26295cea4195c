"""Parts of an EfficientNet: together the whole network."""

import pytest
import torch

from mmrank.registry import MODELS

timm = pytest.importorskip('timm')
NAME = 'tf_efficientnet_lite0'


@pytest.fixture(scope='module')
def whole():
    torch.manual_seed(0)
    stages = MODELS.build(dict(type='mmrank.TIMMStages', model_name=NAME))
    for name, buffer in stages.named_buffers():
        if name.endswith('running_mean'):
            buffer.uniform_(-0.1, 0.1)
    return stages.eval()


def part_of(whole, **settings):
    stages = MODELS.build(dict(type='mmrank.TIMMStages', model_name=NAME, **settings))
    stages.load_state_dict(whole.state_dict())  # which refuses what no stage has
    return stages.eval()


@pytest.mark.parametrize('cut', [1, 6, 7])
def test_parts_are_the_whole_network(whole, cut):
    images = torch.randn(2, 3, 64, 64)
    front, rest = part_of(whole, stop=cut), part_of(whole, start=cut)
    assert not set(front.state_dict()) & set(rest.state_dict())
    assert set(front.state_dict()) | set(rest.state_dict()) == set(whole.state_dict())
    (expected,) = whole(images)
    assert torch.equal(rest(front(images)[0])[0], expected)
    features = whole.timm_model.forward_features(images)
    assert torch.equal(expected, features)
    pytest.importorskip('mmpretrain.models')
    backbone = MODELS.build(dict(type='mmpretrain.TIMMBackbone', model_name=NAME))
    assert list(whole.state_dict()) == list(backbone.state_dict())


def test_frozen_stages_have_no_gradient_and_keep_their_statistics(whole):
    stages = part_of(whole, frozen_stages=6).train()
    before = {k: v.clone() for k, v in stages.state_dict().items()}
    stages(torch.randn(4, 3, 64, 64))[0].square().mean().backward()
    trained = {n for n, p in stages.named_parameters() if p.grad is not None}
    assert trained
    assert all(
        n.startswith(('timm_model.blocks.6', 'timm_model.conv_head', 'timm_model.bn2'))
        for n in trained
    )
    changed = {k for k, v in stages.state_dict().items() if not torch.equal(v, before[k])}
    assert changed
    assert all(k.startswith(('timm_model.blocks.6', 'timm_model.bn2')) for k in changed)
    (out,) = part_of(whole, frozen_stages=8).train()(torch.randn(1, 3, 64, 64))
    assert not out.requires_grad


def test_freeze_bn(whole):
    stages = part_of(whole, start=6, freeze_bn=True).train()
    before = {k: v.clone() for k, v in stages.named_buffers()}
    stages(torch.randn(2, 192, 4, 4))[0].sum().backward()
    assert all(torch.equal(v, before[k]) for k, v in stages.named_buffers())
    assert {p.dim() for p in stages.parameters() if p.requires_grad} == {4}
