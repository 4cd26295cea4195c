"""The self-supervised algorithm; configs of it are trained in test_classifier_configs.py."""

import pytest
import torch
from mmengine.registry import DefaultScope

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
    config = dict(
        type='mmrank.TwoViewLearner',
        backbone=dict(type='mmrank.SmallConvNet', in_channels=3, channels=8, num_blocks=2),
        neck=neck,
        loss=loss,
    )
    return MODELS.build(config)


def batch(n=6):
    g = torch.Generator().manual_seed(0)
    views = list(torch.randn(2, n, 3, 8, 8, generator=g))
    return views, [DataSample(metainfo=dict(sample_idx=3 * i)) for i in range(n)]


def test_needs_no_default_scope():
    # Any scope but the host's, as a detector's config leaves it behind.
    with DefaultScope.overwrite_default_scope('mmengine'):
        net = model()
    preprocessor = type(net.data_preprocessor)
    assert preprocessor.__name__ == 'SelfSupDataPreprocessor'


def test_the_loss_gets_the_numbers_of_its_images():
    net = model().train()
    net(*batch(), mode='loss')
    seen = net.loss_module.temperature.seen.nonzero()[:, 0].tolist()
    assert seen == [0, 3, 6, 9, 12, 15]


@pytest.mark.parametrize('neck', [NECK, None])
def test_embeddings_are_those_of_the_network(neck):
    net = model(dict(type='mmrank.InfoNCELoss'), neck).eval()
    views, samples = batch()
    got = net(views, samples, mode='loss')['loss']
    features = [net.backbone(x) for x in views]
    rows = [net.neck(x)[0] if neck else x[-1].mean((2, 3)) for x in features]
    torch.testing.assert_close(got, net.loss_module(*rows))


def test_features():
    net = model().eval()
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
