"""Loss, backbone and size of real configs, as the table names them."""

from pathlib import Path

import pytest
from mmengine.config import Config

from research.coco.inference_meter import describe_backbone, describe_loss, describe_test_size

CONFIGS = Path(__file__).parents[3] / 'configs' / 'stable_ap'


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('retinanet_r18_fpn_stable-ap_demo', ('StableAP', 'ResNet-18', '256 x 192')),
        ('retinanet_r18_fpn_focal_bccd', ('Focal', 'ResNet-18', '320 x 240')),
    ],
)
def test_published_configs(name, expected):
    pytest.importorskip('mmdet')
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    size = describe_test_size(cfg.test_dataloader.dataset)
    found = describe_loss(cfg.model), describe_backbone(cfg.model), size
    assert found == expected


def test_two_stages_cascades_and_unknown():
    head = {'loss_cls': {'type': 'mmrank.RankSortLoss'}}
    assert describe_loss({'roi_head': {'bbox_head': head}}) == 'RankSort'
    assert describe_loss({'roi_head': {'bbox_head': [head, {}]}}) == 'RankSort'
    assert describe_loss({}) == '-'
    assert describe_backbone({'backbone': {'type': 'mmdet.CSPNeXt'}}) == ('CSPNeXt')
    assert describe_backbone({}) == '-'
    assert describe_test_size({}) == '-'
    wrapped = {'dataset': {'pipeline': [{'type': 'x', 'scale': (3, 2)}]}}
    assert describe_test_size(wrapped) == '3 x 2'
