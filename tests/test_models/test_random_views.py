"""Augmentations of whole batches."""

import colorsys

import numpy as np
import pytest
import torch

from mmrank.models.selfsup.two_view_preprocessor import (
    TwoViewPreprocessor,
    random_colours,
    random_crops,
)
from mmrank.registry import MODELS


def pictures(n=64, size=8):
    g = torch.Generator().manual_seed(0)
    return torch.rand(n, 3, size, size, generator=g)


STILL = dict(brightness=0, contrast=0, saturation=0, hue=0, gray_prob=0)


def test_whole_image_as_it_is():
    images = pictures()
    same = random_crops(images, scale=(1, 1), ratio=(1, 1), flip_prob=0)
    torch.testing.assert_close(same, images, rtol=0, atol=1e-5)
    mirrored = random_crops(images, scale=(1, 1), ratio=(1, 1), flip_prob=1)
    torch.testing.assert_close(mirrored, images.flip(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(random_colours(images, **STILL), images, rtol=0, atol=1e-5)


def test_crops_are_parts_of_the_asked_size():
    # The colours of a ramp say which columns and rows a crop shows.
    size = 32
    place = (torch.arange(size) + 0.5) / size
    ramp = torch.zeros(500, 3, size, size)
    ramp[:, 0], ramp[:, 1] = place[None, None], place[None, :, None]
    crops = random_crops(ramp, scale=(0.25, 0.5), ratio=(0.5, 2))
    # Slopes at the middle are width and height of the crop.
    middle = slice(size // 2 - 1, size // 2 + 1)
    width = crops[:, 0, size // 2, middle].diff(dim=1)[:, 0] * size
    height = crops[:, 1, middle, size // 2].diff(dim=1)[:, 0] * size
    flipped = width < 0
    assert 200 < flipped.sum() < 300
    area, shape = (width * height).abs(), (width / height).abs()
    assert area.min() > 0.25 - 1e-3
    assert area.max() < 0.5 + 1e-3
    assert area.mean() == pytest.approx(0.375, abs=0.02)
    assert shape.min() > 0.5 - 1e-3
    assert shape.max() < 2 + 1e-3
    assert shape.log().mean().abs() < 0.1
    assert crops.min() >= 0
    assert crops.max() <= 1
    assert not torch.equal(crops[0], crops[1])


def test_brightness_and_contrast():
    images = 0.4 + 0.1 * pictures()
    got = random_colours(images, **{**STILL, 'brightness': 0.4}, jitter_prob=1)
    ratio = (got / images).flatten(1)
    torch.testing.assert_close(ratio.amin(1), ratio.amax(1))
    assert 0.6 < ratio.min() < 0.7
    assert 1.3 < ratio.max() < 1.4
    got = random_colours(images, **{**STILL, 'contrast': 0.4}, jitter_prob=1)
    luma = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    mean = (images * luma).sum(1).mean((1, 2))[:, None, None, None]
    ratio = got.flatten(1).std(1) / images.flatten(1).std(1)
    assert 0.6 < ratio.min() < 0.7
    torch.testing.assert_close(
        got - mean, ratio[:, None, None, None] * (images - mean), rtol=0, atol=1e-5
    )
    torch.testing.assert_close((got * luma).sum(1).mean((1, 2)), mean.flatten(), rtol=0, atol=1e-5)


def test_grey_images():
    images = pictures()
    grey = random_colours(images, **{**STILL, 'gray_prob': 1})
    luma = (images * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1)
    torch.testing.assert_close(grey, luma[:, None].expand_as(grey), rtol=0, atol=1e-5)
    some = random_colours(pictures(400), **{**STILL, 'gray_prob': 0.2})
    is_grey = (some.amax(1) - some.amin(1)).amax((1, 2)) < 1e-4
    assert 50 < is_grey.sum() < 110


def test_hue_turns_colours_and_keeps_luma():
    images = 0.4 + 0.2 * pictures(200, size=1)
    got = random_colours(images, **{**STILL, 'hue': 0.1}, jitter_prob=1)
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    torch.testing.assert_close((got * weights).sum(1), (images * weights).sum(1), rtol=0, atol=1e-5)
    hues = [
        np.array([colorsys.rgb_to_hsv(*x.flatten().tolist())[0] for x in xs])
        for xs in (images, got)
    ]
    turn = np.abs((hues[1] - hues[0] + 0.5) % 1 - 0.5)
    # YIQ and HSV measure angles differently, but not by much.
    assert 0.03 < turn.mean() < 0.07
    assert turn.max() < 0.2


def test_half_of_the_images_are_left_alone():
    images = pictures(400)
    got = random_colours(images, gray_prob=0, jitter_prob=0.5)
    same = (got - images).abs().amax((1, 2, 3)) < 1e-5
    assert 150 < same.sum() < 250


def build(**kwargs):
    config = dict(mean=[128.0] * 3, std=[64.0] * 3, **kwargs)
    return MODELS.build(dict(type='mmrank.TwoViewPreprocessor', **config))


def batch():
    return dict(inputs=(255 * pictures(5)).to(torch.uint8), data_samples=list(range(5)))


def test_two_views_in_training_and_one_in_evaluation():
    torch.manual_seed(0)
    made = build()(batch(), training=True)
    view1, view2 = made['inputs']
    assert view1.shape == view2.shape == (5, 3, 8, 8)
    assert not torch.equal(view1, view2)
    assert made['data_samples'] == list(range(5))
    for view in (view1, view2):
        assert view.min() >= -2
        assert view.max() <= 127 / 64
    torch.manual_seed(0)
    for again, view in zip(build()(batch(), training=True)['inputs'], (view1, view2)):
        assert torch.equal(again, view)
    images = build()(batch())['inputs']
    expected = (batch()['inputs'].float() - 128) / 64
    torch.testing.assert_close(images, expected)


def test_options(monkeypatch):
    data = batch()
    swapped = build(bgr_to_rgb=True)(data)['inputs']
    torch.testing.assert_close(swapped.flip(1), build()(data)['inputs'])
    for view in build(channels_last=True)(data, training=True)['inputs']:
        assert view.is_contiguous(memory_format=torch.channels_last)
    monkeypatch.setattr(TwoViewPreprocessor, '_view', lambda self, images: images)
    for view in build()(data, training=True)['inputs']:
        torch.testing.assert_close(view, build()(data)['inputs'], rtol=0, atol=1e-3)
    assert not build().state_dict()


@pytest.mark.parametrize(
    ('inputs', 'message'),
    [
        ([torch.zeros(2, 3, 8, 8)] * 2, 'leave MultiView out'),
        (torch.zeros(3, 8, 8), r'needs one \(B, 3, H, W\)'),
        (torch.zeros(2, 1, 8, 8), '3 channels'),
    ],
)
def test_bad_input_is_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        build()(dict(inputs=inputs, data_samples=None), training=True)
