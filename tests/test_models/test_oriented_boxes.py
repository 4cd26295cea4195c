"""Oriented boxes, whose overlaps need a compiled mmcv."""

import math

import pytest
import torch

pytest.importorskip('mmdet')
from torch import nn

from mmrank.mmcv_ops import compiled_extension
from mmrank.models.dense_heads.box_collector import BoxCollector


class _NoLoss(nn.Module):
    def forward(self, pred, *args, **kwargs):
        return pred.new_zeros(())


def test_quality_is_the_iou_of_oriented_boxes():
    """Two unit-high boxes at a right angle share a square."""
    boxes = torch.tensor([[8.0, 8, 4, 1, 0], [8, 8, 4, 2, 0.5]])
    turned = boxes.clone()
    turned[0, 4] = math.pi / 2
    collector = BoxCollector(_NoLoss(), 'quality')
    collector.open()
    collector(boxes, turned)
    if compiled_extension() is None:
        with pytest.raises(NotImplementedError, match="'box_iou_rotated'.*--compile-mmcv"):
            collector.close([torch.tensor([0, 1])], 2)
        return
    quality = collector.close([torch.tensor([0, 1])], 2)['quality']
    torch.testing.assert_close(quality, torch.tensor([1 / 7, 1.0]))
