"""Small box heads and four RoIs for them, two with an object, shared by tests."""

import torch
from small_heads import GIOU, built

CLASSES = 3
#: Image and corners of each RoI.
ROIS = torch.tensor(
    [[0.0, 10, 10, 50, 60], [0.0, 0, 0, 20, 20], [1.0, 30, 20, 70, 80], [1.0, 5, 5, 90, 90]]
)
LABELS = torch.tensor([2, CLASSES, 0, CLASSES])
#: The objects of the RoIs that have one.
TARGETS = torch.tensor([[12.0, 8, 55, 58], [28.0, 25, 66, 84]])


def build_box_head(loss_cls, listwise=True, head_type='mmdet.Shared2FCBBoxHead', **settings):
    """A head on features of 4 channels, listwise unless set otherwise."""
    kind = dict(type=head_type)
    if listwise:
        kind = dict(type='mmrank.ListwiseBBoxHead', head_type=head_type)
    config = dict(
        kind,
        in_channels=4,
        fc_out_channels=8,
        roi_feat_size=1,
        num_classes=CLASSES,
        reg_decoded_bbox=True,
        loss_bbox=GIOU,
        loss_cls=loss_cls,
    )
    return built({**config, **settings})


def box_head_losses(head, scores, boxes, labels=LABELS, rois=ROIS):
    """Losses of the outputs of a head; RoIs with a class have the boxes of ``TARGETS``."""
    has_object = labels < head.num_classes
    targets = torch.zeros(len(labels), 4)
    targets[has_object] = TARGETS[: has_object.sum()]
    if not head.reg_decoded_bbox:
        targets[has_object] = head.bbox_coder.encode(rois[has_object, 1:], targets[has_object])
    weights = has_object.float()[:, None].expand(-1, 4)
    return head.loss(scores, boxes, rois, labels, torch.ones(len(labels)), targets, weights)
