"""Stored feature maps: written whole, read by path, same as the network."""

import pickle

import cv2
import numpy as np
import pytest
import torch

from mmrank.datasets.transforms import FeatureCache, LoadCachedFeatures
from mmrank.errors import UserError


@pytest.fixture
def cache(tmp_path):
    """Three images with a fixed and two random views of (2, 1, 3) maps."""
    maps = np.random.default_rng(0).normal(size=(3, 3, 2, 1, 3))
    paths = [str(tmp_path / 'images' / x) for x in ('a.jpg', 'b/c.jpg', 'd.jpg')]
    FeatureCache.write(
        tmp_path / 'cache' / 'maps',
        paths,
        [iter(maps[:, view]) for view in range(3)],
        {'stages': 6},
    )
    return tmp_path / 'cache' / 'maps', paths, maps.astype(np.float16)


def test_random_views_are_those_behind_the_fixed_one(cache):
    path, paths, maps = cache
    load = LoadCachedFeatures(str(path), random_view=True)
    np.random.seed(0)
    seen = set()
    for _ in range(50):
        image = load({'img_path': paths[1]})['img'].transpose(2, 0, 1)
        seen.update(v for v in range(3) if (image == maps[1, v]).all())
    assert seen == {1, 2}
    np.random.seed(7)
    first = [load({'img_path': paths[0]})['img'] for _ in range(5)]
    np.random.seed(7)
    again = [load({'img_path': paths[0]})['img'] for _ in range(5)]
    np.testing.assert_array_equal(first, again)


def test_images_have_their_rows_and_move_with_the_cache(cache, tmp_path, monkeypatch):
    path, paths, maps = cache
    load = LoadCachedFeatures(str(path))
    for row in (2, 0, 1):
        item = load({'img_path': paths[row]})
        assert item['img'].dtype == np.float32
        assert item['img_shape'] == item['ori_shape'] == (1, 3)
        np.testing.assert_array_equal(item['img'], maps[row, 0].transpose(1, 2, 0))
    with pytest.raises(UserError, match=r"no image 'z\.jpg'.*Fix"):
        load({'img_path': str(tmp_path / 'images' / 'z.jpg')})
    moved = tmp_path / 'elsewhere'
    moved.mkdir()
    (tmp_path / 'cache').rename(moved / 'cache')
    monkeypatch.chdir(tmp_path)
    load = LoadCachedFeatures('elsewhere/cache/maps')
    item = load({'img_path': 'elsewhere/images/b/c.jpg'})
    np.testing.assert_array_equal(item['img'], maps[1, 0].transpose(1, 2, 0))


@pytest.mark.parametrize('name', ['maps.json', 'maps.npy'])
@pytest.mark.parametrize(
    'damage',
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(b''),
        lambda path: path.write_bytes(b'{}'),
        lambda path: path.write_bytes(b'[1, 2]'),
        lambda path: path.write_bytes(b'\xff' * 99),
        lambda path: path.write_bytes(pickle.dumps([1])),
        lambda path: path.write_bytes(path.read_bytes().replace(b'3', b'4', 2)),
        lambda path: path.with_name('maps.npy').write_bytes(
            path.with_name('maps.npy').read_bytes().replace(b'<f2', b'<i2')
        ),
    ],
)
def test_absent_and_damaged_files_are_named(cache, name, damage):
    path, _, _ = cache
    damage(path.with_name(name))
    with pytest.raises(UserError, match=r'maps.json and maps.npy cannot be .* Fix: .*cache_feat'):
        FeatureCache(path)


def test_an_interrupted_write_leaves_no_index(tmp_path):
    def broken():
        yield np.zeros((1, 1, 1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FeatureCache.write(tmp_path / 'c', ['/a', '/b'], [broken()], {})
    with pytest.raises(UserError, match=r'c\.json and c\.npy cannot'):
        FeatureCache(tmp_path / 'c')


def test_links_are_not_followed(tmp_path):
    (tmp_path / 'precious').write_text('mine')
    (tmp_path / 'c.npy.part.npy').symlink_to(tmp_path / 'precious')
    FeatureCache.write(tmp_path / 'c', ['/a'], [iter([np.zeros((1, 1, 1))])], {})
    assert (tmp_path / 'precious').read_text() == 'mine'
    assert FeatureCache(tmp_path / 'c').row('/a') == 0
    with pytest.raises(UserError, match='no random view'):
        LoadCachedFeatures(str(tmp_path / 'c'), random_view=True)


@pytest.mark.parametrize('value', [1e6, np.inf, np.nan])
def test_what_float16_cannot_hold_is_refused(tmp_path, value):
    maps = iter([np.full((1, 1, 1), value)])
    with pytest.raises(UserError, match='float16'):
        FeatureCache.write(tmp_path / 'c', ['/x/a.jpg'], [maps], {})


CONFIG = """
default_scope = 'mmpretrain'
dataset = dict(type='mmrank.ClassFolder', data_root={root!r})
load = dict(type='LoadImageFromFile')
pack = dict(type='PackInputs')
test_pipeline = [load, dict(type='CenterCrop', crop_size=32), pack]
train_pipeline = [load, dict(type='RandomCrop', crop_size=32), pack]
train_dataloader = dict(dataset=dict(dataset, pipeline=train_pipeline))
test_dataloader = dict(dataset=dict(dataset, pipeline=test_pipeline))
model = dict(
    data_preprocessor=dict(mean=[120.0] * 3, std=[60.0] * 3, to_rgb=True),
    image_encoder=[dict(
        type='mmrank.TIMMStages',
        model_name='tf_efficientnet_lite0',
        frozen_stages={frozen},
        init_cfg=dict(type='Pretrained', checkpoint={weights!r}))])
"""


@pytest.fixture
def images(tmp_path):
    pytest.importorskip('timm')
    pytest.importorskip('mmpretrain.models')
    from mmrank.registry import MODELS

    rng = np.random.default_rng(0)
    for name in ('x/1', 'x/2', 'y/1'):
        path = tmp_path / 'images' / f'{name}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), rng.integers(0, 255, (40, 48, 3), np.uint8))
    torch.manual_seed(0)
    stages = MODELS.build(dict(type='mmrank.TIMMStages', model_name='tf_efficientnet_lite0')).eval()
    torch.save({'state_dict': stages.state_dict()}, tmp_path / 'weights.pth')

    def config(frozen):
        path = tmp_path / 'config.py'
        path.write_text(
            CONFIG.format(
                root=str(tmp_path / 'images') + '/',
                frozen=frozen,
                weights=str(tmp_path / 'weights.pth'),
            )
        )
        return path

    return config, stages


TOOL = 'dataset_converters/cache_features'


@pytest.mark.parametrize('pool', [False, True])
def test_tool_stores_what_the_network_gives(images, run, tmp_path, pool):
    config, stages = images
    if pool:
        assert 'frozen_stages' in run(TOOL, config(0), tmp_path / 'maps', status=2)
    frozen = 8 if pool else 6
    words = ['--views', '1', '--batch-size', '2'] + ['--pool'] * pool
    assert '3 images x 2 views' in run(TOOL, config(frozen), tmp_path / 'maps', *words)
    cache = FeatureCache(tmp_path / 'maps')
    assert cache.maps.shape[:2] == (3, 2)
    image = cv2.imread(str(tmp_path / 'images/x/2.png'))[4:36, 8:40]
    inputs = torch.from_numpy(image[..., ::-1].copy()).permute(2, 0, 1)
    x = (inputs.float()[None] - 120) / 60
    model = stages.timm_model
    with torch.no_grad():
        x = model.blocks[:6](model.bn1(model.conv_stem(x)))
        if pool:
            x = model.bn2(model.conv_head(model.blocks[6](x)))
            x = x.mean((2, 3), keepdim=True)
    stored = cache.maps[cache.row(str(tmp_path / 'images/x/2.png')), 0]
    np.testing.assert_allclose(stored, x[0].numpy(), rtol=2e-3, atol=2e-3)
