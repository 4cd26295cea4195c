"""mmdet's own configs take the listwise head in three lines; detectors with masks, whole."""

import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.registry import MODELS
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope, init_default_scope
from published_configs import without_downloads
from small_rcnn import make_batch

from mmrank.losses import StableAPLoss

CONFIG = """
_base_ = 'mmdet::{base}.py'
model = dict(bbox_head=dict(
    type='mmrank.ListwiseHead',
    head_type='mmdet.{head}',
    loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss')))
"""
#: Those with masks, and the loss of a mask.
STOCK = {
    'BoxInstBboxHead': ('boxinst/boxinst_r50_fpn_ms-90k_coco', 'loss_mask_project'),
    'CondInstBboxHead': ('condinst/condinst_r50_fpn_ms-poly-90k_coco_instance', 'loss_mask'),
    'RTMDetInsSepBNHead': ('rtmdet/rtmdet-ins_tiny_8xb32-300e_coco', 'loss_mask'),
}
HEADS = {
    'DDODHead': 'ddod/ddod_r50_fpn_1x_coco',
    'FoveaHead': 'foveabox/fovea_r50_fpn_4xb4-1x_coco',
    'GARetinaHead': 'guided_anchoring/ga-retinanet_r50_fpn_1x_coco',
    'LDHead': 'ld/ld_r18-gflv1-r101_fpn_1x_coco',
    'RTMDetSepBNHead': 'rtmdet/rtmdet_tiny_8xb32-300e_coco',
    'RepPointsHead': 'reppoints/reppoints-moment_r50_fpn_1x_coco',
    'SABLRetinaHead': 'sabl/sabl-retinanet_r50_fpn_1x_coco',
    'TOODHead': 'tood/tood_r50_fpn_1x_coco',
    'VFNetHead': 'vfnet/vfnet_r50_fpn_1x_coco',
    'YOLOFHead': 'yolof/yolof_r50-c5_8xb8-1x_coco',
    'YOLOXHead': 'yolox/yolox_tiny_8xb8-300e_coco',
}


def read(base, head, folder):
    path = folder / 'config.py'
    path.write_text(CONFIG.format(base=base, head=head))
    return Config.fromfile(path)


@pytest.mark.parametrize('head', HEADS)
def test_stock_config_builds(head, tmp_path):
    model = read(HEADS[head], head, tmp_path).model
    parts = {key: model[key] for key in ('train_cfg', 'test_cfg') if key in model}
    with DefaultScope.overwrite_default_scope('mmdet'):
        built = MODELS.build({**model.bbox_head, **parts})
    assert type(built).__name__ == f'Listwise{head}'
    assert isinstance(built.loss_cls.loss, StableAPLoss)
    assert built.loss_cls.loss.num_columns == 80


def build(head, folder):
    """The stock detector at an eighth of its width, and its optimiser."""
    config = read(STOCK[head][0], head, folder)
    model = config.model
    init_default_scope('mmdet')
    without_downloads(model.backbone)
    if model.backbone.type == 'ResNet':
        model.backbone.base_channels = 8
        model.neck.in_channels = [32, 64, 128, 256]
    # BoxInst warms its losses up by the iteration.
    MessageHub.get_current_instance().update_info('iter', 1)
    torch.manual_seed(0)
    detector = MODELS.build(model)
    detector.init_weights()
    return detector, build_optim_wrapper(detector, config.optim_wrapper)


@pytest.mark.parametrize('head', STOCK)
def test_detector_with_masks(head, tmp_path):
    if head.startswith('BoxInst'):
        pytest.importorskip('skimage', reason='BoxInst of mmdet needs scikit-image')
    detector, wrapper = build(head, tmp_path)
    (ranking,) = [m for m in detector.modules() if isinstance(m, StableAPLoss)]
    assert ranking.num_columns == 80
    detector.train()
    for objects in (True, False):
        batch = make_batch(objects=objects, masks=True, size=128)
        logs = detector.train_step(batch, wrapper)
        assert logs['loss'].isfinite()
        assert (logs['loss_cls'] > 0) == objects
        assert (logs[STOCK[head][1]] > 0) == objects
    detector.test_cfg.score_thr = 0.0
    detector.test_cfg.max_per_img = 5
    detector.bbox_head.test_cfg = detector.test_cfg
    detector.eval()
    with torch.no_grad():
        results = detector.val_step(make_batch(masks=True, size=128))
    for result in results:
        found = result.pred_instances
        assert len(found) > 0
        assert found.masks.shape == (len(found), 128, 128)
        assert found.scores.isfinite().all()
