"""Settings that a head, a model or a part of one refuses when it is built, by their name."""

import pytest

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from covered_heads import build_covered
from mmengine.registry import init_default_scope
from query_heads import ASSIGNER, build_query_head
from small_box_heads import build_box_head
from small_models import table
from small_rcnn import federated_detector

from mmrank.errors import UserError
from mmrank.registry import MODELS

AP = dict(type='mmrank.StableAPLoss')
ALRP = dict(type='mmrank.ALRPLoss')
RANK_SORT = dict(type='mmrank.RankSortLoss')
CLIP = dict(type='mmrank.CLIPLoss')
IN_BATCH = dict(type='mmrank.InBatchLoss')
L1 = dict(type='mmdet.L1Loss')
QUALITY_FOCAL = dict(type='mmdet.QualityFocalLoss', use_sigmoid=True)
#: What a config that inherits from mmdet's DETR still has.
SOFTMAX = dict(AP, bg_cls_weight=0.1, use_sigmoid=False, class_weight=1.0)
SOFTMAX_COST = dict(ASSIGNER, match_costs=[dict(type='mmdet.ClassificationCost')])
DELETE = 'does not take bg_cls_weight. Fix: leave it out, by _delete_=True'

#: Host head, loss, other settings, and the error.
DENSE_HEADS = [
    ('RetinaHead', dict(type='mmrank.NoLoss'), {}, KeyError, 'mmrank.NoLoss'),
    ('ATSSHead', RANK_SORT, dict(loss_bbox=L1), ValueError, "loss_bbox.type='L1Loss'"),
    ('FCOSHead', ALRP, dict(balance_boxes=True), ValueError, 'remove balance_boxes'),
    ('RPNHead', AP, dict(federated=True), TypeError, 'objects of any class'),
    ('GFLHead', QUALITY_FOCAL, dict(federated=True), TypeError, 'loss_cls=QualityFocalLoss'),
]
#: The same of the heads on the queries of a decoder.
QUERY_HEADS = [
    ('DETRHead', SOFTMAX, {}, UserError, DELETE),
    ('DINOHead', dict(AP, use_sigmoid=False), {}, UserError, 'use_sigmoid=True'),
    ('DETRHead', AP, dict(train_cfg=dict(assigner=SOFTMAX_COST)), ValueError, 'FocalLossCost'),
    ('DINOHead', dict(AP, mode='per_class'), {}, ValueError, "mode='flatten'"),
    ('DINOHead', AP, dict(num_layers=5), ValueError, 'num_layers=5.*remove'),
]
#: Loss of a box head, other settings, and the error.
BOX_HEADS = [
    (AP, dict(head_type='mmdet.NoHead'), KeyError, "head_type='mmdet.NoHead'"),
    (AP, dict(head_type='mmdet.SABLHead'), TypeError, 'SABLHead.*does not use the loss'),
    (dict(type='mmdet.CrossEntropyLoss'), {}, TypeError, 'CrossEntropyLoss is not a ranking'),
    (AP, dict(box_average='boxes'), ValueError, "box_average='boxes'"),
    (AP, dict(box_average='positives', balance_boxes=True), ValueError, 'set only one of them'),
    (ALRP, dict(balance_boxes=True), ValueError, 'itself; remove'),
    (ALRP, dict(reg_decoded_bbox=False), ValueError, 'decoded boxes.*reg_decoded_bbox=False'),
    (ALRP, dict(loss_bbox=L1), ValueError, "requires decoded.*'L1Loss'"),
]
RESNET = dict(type='mmpretrain.ResNet', depth=18, stem_channels=8, base_channels=8)
HEAD = dict(num_classes=3, in_channels=8, loss=AP)
TIMM = dict(model_name='tf_efficientnet_lite0')
FOUR = dict(AP, num_classes=4)
ONE = dict(num_classes=1, exclusive=True)
CE = dict(type='torch.nn.CrossEntropyLoss')
TOWERS = dict(left=table(2), right=table(2))
#: Registered name, settings, and the error.
PARTS = [
    ('ListwiseHead', dict(head_type='mmdet.NoHead', loss_cls=AP), KeyError, "='mmdet.NoHead'"),
    ('OneVsRestHead', dict(HEAD, loss=FOUR), ValueError, 'num_classes=4 of the loss'),
    ('OneVsRestHead', dict(HEAD, **ONE), ValueError, 'exclusive=True needs num_classes of at le'),
    ('RetrievalHead', dict(num_classes=4, loss=CE), TypeError, 'embedding_loss'),
    ('InBatchRetrievalHead', dict(loss=dict(type='mmrank.SOPRCLoss')), TypeError, 'RetrievalHead'),
    ('ImageTextContrastHead', dict(loss=IN_BATCH), TypeError, 'mmrank.ImageTextInBatchHead'),
    ('ImageTextInBatchHead', dict(loss=CLIP), TypeError, 'ImageTextContrastHead'),
    ('ImageTextInBatchHead', dict(loss=IN_BATCH, scale=0), ValueError, 'scale must be > 0'),
    ('TwoTower', dict(TOWERS, loss=IN_BATCH, top_k=0), ValueError, 'top_k must'),
    ('SmallConvNet', dict(channels=0), ValueError, 'channels must be an int >= 1'),
    ('DeepFeatureMixup', dict(backbone=RESNET, stages=('layer5',)), ValueError, "no 'layer5', o"),
    ('DeepFeatureMixup', dict(backbone=RESNET, u=1.5), ValueError, 'u must be in'),
    ('TextTransformer', dict(max_length=1), ValueError, 'max_length must be'),
    ('HuggingFaceTextEncoder', dict(name_or_path='bert', max_length=2), ValueError, 'max_length'),
    ('TIMMStages', dict(TIMM, start=3, stop=3), UserError, '0 <= start < stop'),
    ('TIMMStages', dict(TIMM, stop=2, frozen_stages=3), ValueError, 'frozen_stages must be in'),
    ('TIMMStages', dict(model_name='resnet18'), UserError, 'has no conv_stem'),
    ('TIMMStages', dict(model_name='no_such_model'), UserError, 'has no model'),
]


def build_part(name, **settings):
    if name == 'TIMMStages':
        pytest.importorskip('timm')
    init_default_scope('mmpretrain')
    return MODELS.build(dict(type=f'mmrank.{name}', **settings))


REFUSED = [
    *((build_covered, *row) for row in DENSE_HEADS),
    *((build_query_head, *row) for row in QUERY_HEADS),
    *((build_box_head, *row) for row in BOX_HEADS),
    *((build_part, *row) for row in PARTS),
    (federated_detector, dict(bbox_head=None), UserError, 'mmrank.ListwiseBBoxHead'),
]


@pytest.mark.parametrize('row', REFUSED, ids=lambda row: str(row[1:-3]))
def test_a_setting_is_refused(row):
    build, *args, settings, error, message = row
    with pytest.raises(error, match=message):
        build(*args, **settings)
