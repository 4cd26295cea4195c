"""mmdet's own configs take the listwise head in three lines."""

import pytest

pytest.importorskip('mmdet')
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmrank.losses import StableAPLoss
from mmrank.registry import MODELS

CONFIG = """
_base_ = 'mmdet::{base}.py'
model = dict(bbox_head=dict(
    type='mmrank.ListwiseHead',
    head_type='mmdet.{head}',
    loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss')))
"""
STOCK = {
    'DDODHead': 'ddod/ddod_r50_fpn_1x_coco',
    'FoveaHead': 'foveabox/fovea_r50_fpn_4xb4-1x_coco',
    'GARetinaHead': 'guided_anchoring/ga-retinanet_r50_fpn_1x_coco',
    'LADHead': 'lad/lad_r50-paa-r101_fpn_2xb8_coco_1x',
    'LDHead': 'ld/ld_r18-gflv1-r101_fpn_1x_coco',
    'PAAHead': 'paa/paa_r50_fpn_1x_coco',
    'PISARetinaHead': 'pisa/retinanet-r50_fpn_pisa_1x_coco',
    'RTMDetSepBNHead': 'rtmdet/rtmdet_tiny_8xb32-300e_coco',
    'RepPointsHead': 'reppoints/reppoints-moment_r50_fpn_1x_coco',
    'SABLRetinaHead': 'sabl/sabl-retinanet_r50_fpn_1x_coco',
    'TOODHead': 'tood/tood_r50_fpn_1x_coco',
    'VFNetHead': 'vfnet/vfnet_r50_fpn_1x_coco',
    'YOLOFHead': 'yolof/yolof_r50-c5_8xb8-1x_coco',
    'YOLOXHead': 'yolox/yolox_tiny_8xb8-300e_coco',
}


@pytest.mark.parametrize('head', list(STOCK))
def test_stock_config_builds(head, tmp_path):
    path = tmp_path / 'config.py'
    path.write_text(CONFIG.format(base=STOCK[head], head=head))
    model = Config.fromfile(path).model
    parts = {key: model[key] for key in ('train_cfg', 'test_cfg') if key in model}
    with DefaultScope.overwrite_default_scope('mmdet'):
        built = MODELS.build({**model.bbox_head, **parts})
    assert type(built).__name__ == f'Listwise{head}'
    assert isinstance(built.loss_cls.loss, StableAPLoss)
    assert built.loss_cls.loss.num_classes == 80
