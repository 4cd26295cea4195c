"""The two demo configs: the same but for the loss, and fit for exact resume."""

from pathlib import Path

import pytest
from mmengine.config import Config

from lib.synthetic.shapes_coco import ShapesSpec

CONFIGS = Path(__file__).resolve().parents[2] / 'configs' / 'stable_ap'

pytest.importorskip('mmdet')


@pytest.fixture(scope='module')
def demo_configs():
    return {
        loss: Config.fromfile(CONFIGS / f'retinanet_r18_fpn_{loss}_demo.py')
        for loss in ('focal', 'stable-ap')
    }


def test_configs_differ_in_the_loss_alone(demo_configs):
    focal, stable = (demo_configs[key].to_dict() for key in ('focal', 'stable-ap'))
    for config in (focal, stable):
        # What may differ: the loss, the head that serves it, its monitor.
        config.pop('custom_hooks', None)
        head = config['model']['bbox_head']
        for key in ('type', 'head_type', 'loss_cls'):
            head.pop(key, None)
    assert focal == stable


def test_configs_fit_the_generated_data(demo_configs):
    spec = ShapesSpec()
    for cfg in demo_configs.values():
        assert tuple(cfg.metainfo.classes) == spec.classes
        assert cfg.model.bbox_head.num_classes == spec.num_classes
        assert tuple(cfg.image_scale) == (spec.width, spec.height)
        for split in ('train', 'val', 'test'):
            loader = cfg[f'{split}_dataloader']
            # Kept workers would not see the same batches after a resume.
            assert loader.persistent_workers is False
            assert loader.dataset.metainfo.classes == cfg.metainfo.classes


def test_nothing_is_fetched(demo_configs):
    for cfg in demo_configs.values():
        assert cfg.model.backbone.init_cfg is None
        assert 'torchvision://' not in cfg.pretty_text
        assert cfg.load_from is None
