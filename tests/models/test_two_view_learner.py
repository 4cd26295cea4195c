"""The self-supervised algorithm and its augmentations; test_classifier_configs.py has configs."""

import math

import pytest
import torch
from mmengine.registry import DefaultScope
from small_models import CONV

from mmrank.models.selfsup import two_view_preprocessor as views

pytest.importorskip('mmpretrain')
from mmpretrain.structures import DataSample

from mmrank.registry import MODELS

ISOGCLR = dict(type='mmrank.ISogCLRLoss', num_samples=24)
NECK = dict(
    type='mmpretrain.NonLinearNeck',
    in_channels=8,
    hid_channels=16,
    out_channels=16,
    num_layers=3,
    with_last_bn=False,
    norm_cfg=dict(type='BN1d'),
)


def model(loss=ISOGCLR, neck=NECK):
    config = dict(type='mmrank.TwoViewLearner', backbone=CONV, neck=neck, loss=loss)
    return MODELS.build(config)


def batch(n=6):
    g = torch.Generator().manual_seed(0)
    views = list(torch.randn(2, n, 3, 8, 8, generator=g))
    return views, [DataSample(metainfo=dict(sample_idx=3 * i)) for i in range(n)]


@pytest.mark.parametrize('neck', [NECK, None])
def test_embeddings_are_those_of_the_network(neck):
    net = model(dict(type='mmrank.InfoNCELoss'), neck).eval()
    views, samples = batch()
    got = net(views, samples, mode='loss')['loss']
    features = [net.backbone(x) for x in views]
    rows = [net.neck(x)[0] if neck else x[-1].mean((2, 3)) for x in features]
    torch.testing.assert_close(got, net.loss_module(*rows))


def test_features():
    # Any scope but the host's, as a detector's config leaves it behind.
    with DefaultScope.overwrite_default_scope('mmengine'):
        net = model().train()
    assert type(net.data_preprocessor).__name__ == 'SelfSupDataPreprocessor'
    net(*batch(), mode='loss')
    seen = net.loss_module.temperature.log_s.isfinite().nonzero()[:, 0].tolist()
    assert seen == [0, 3, 6, 9, 12, 15]
    net.eval()
    (view, _), samples = batch()
    expected = net.backbone(view)[-1].mean((2, 3))
    for given in (samples, None):
        out = net(view, given, mode='predict')
        torch.testing.assert_close(torch.stack([x.feature for x in out]), expected)
    assert out[0].feature.shape == (8,)
    assert isinstance(net(view), tuple)


def test_bad_input_is_refused():
    net = model()
    views, samples = batch()
    for inputs, number in ((views[0], 1), (views[:1], 1), (views * 2, 4)):
        with pytest.raises(ValueError, match=f'got {number}; put .*MultiView'):
            net(inputs, samples, mode='loss')
    with pytest.raises(ValueError, match='have no sample_idx'):
        net(views, [DataSample() for _ in range(6)], mode='loss')
    with pytest.raises(ValueError, match='leave MultiView out'):
        net(views, samples, mode='predict')
    with pytest.raises(RuntimeError, match='Invalid mode'):
        net(views, samples, mode='other')


LUMA = torch.tensor([0.299, 0.587, 0.114])[:, None, None]


def pictures(n=64, size=8):
    g = torch.Generator().manual_seed(0)
    return torch.rand(n, 3, size, size, generator=g)


def test_crops_are_parts_of_the_papers_size():
    # The colours of a ramp say which columns and rows a crop shows.
    torch.manual_seed(0)
    size = 32
    place = (torch.arange(size) + 0.5) / size
    ramp = torch.zeros(500, 3, size, size)
    ramp[:, 0] = place[None, None]
    ramp[:, 1] = place[None, :, None]
    crops = views._random_crops(ramp)
    # Slopes at the middle are width and height of the crop.
    middle = slice(size // 2 - 1, size // 2 + 1)
    width = crops[:, 0, size // 2, middle].diff(dim=1)[:, 0] * size
    height = crops[:, 1, middle, size // 2].diff(dim=1)[:, 0] * size
    assert 200 < (width < 0).sum() < 300
    area = (width * height).abs()
    assert 0.19 < area.min() < 0.22
    assert area.mean() == pytest.approx(0.6, abs=0.04)
    shape = (width / height).abs().log()
    assert shape.abs().max() < math.log(4 / 3) + 1e-3
    assert shape.mean().abs() < 0.05
    assert 0 <= crops.min() < crops.max() <= 1


@pytest.mark.parametrize(
    ('strengths', 'kept'),
    [
        ((0.4, 0, 0, 0), lambda x: x / x.mean((1, 2, 3), keepdim=True)),  # but for the brightness
        ((0, 0.4, 0, 0), lambda x: (x * LUMA).sum(1).mean((1, 2))),
        ((0, 0, 0.4, 0), lambda x: (x * LUMA).sum(1)),
        ((0, 0, 0, 0.1), lambda x: (x * LUMA).sum(1)),
    ],
    ids=['brightness', 'contrast', 'saturation', 'hue'],
)
def test_each_change_of_colours_keeps_what_it_should(strengths, kept, monkeypatch):
    monkeypatch.setattr(views, '_STRENGTHS', strengths)
    torch.manual_seed(0)
    images = 0.4 + 0.1 * pictures(400)
    got = views._random_colours(images)
    is_grey = (got.amax(1) - got.amin(1)).amax((1, 2)) < 1e-4
    assert 50 < is_grey.sum() < 110
    images = images[~is_grey]
    got = got[~is_grey]
    torch.testing.assert_close(kept(got), kept(images), rtol=0, atol=1e-5)
    is_same = (got - images).abs().amax((1, 2, 3)) < 1e-5
    assert 0.13 < is_same.float().mean() < 0.27


def build(**kwargs):
    config = dict(mean=[128.0] * 3, std=[64.0] * 3, **kwargs)
    return MODELS.build(dict(type='mmrank.TwoViewPreprocessor', **config))


def raw_batch():
    return dict(inputs=(255 * pictures(5)).to(torch.uint8), data_samples=list(range(5)))


def test_two_views_in_training_and_one_in_evaluation():
    made = build()(raw_batch(), training=True)
    assert made['data_samples'] == list(range(5))
    assert not torch.equal(*made['inputs'])
    for view in made['inputs']:
        assert view.shape == (5, 3, 8, 8)
        assert -2 <= view.min() < view.max() <= 127 / 64
    images = build()(raw_batch())['inputs']
    torch.testing.assert_close(images, (raw_batch()['inputs'].float() - 128) / 64)
    assert not build().state_dict()
    for view in build(channels_last=True)(raw_batch(), training=True)['inputs']:
        assert view.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ('inputs', 'message'),
    [
        ([torch.zeros(2, 3, 8, 8)] * 2, 'leave MultiView out'),
        (torch.zeros(2, 1, 8, 8), r'needs one \(B, 3, H, W\).*\(2, 1, 8, 8\)'),
    ],
)
def test_bad_views_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        build()(dict(inputs=inputs, data_samples=None), training=True)
