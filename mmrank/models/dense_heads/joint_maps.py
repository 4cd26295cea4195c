"""Ranks the product of class and objectness of each anchor of YOLOv3.

One map of YOLOv3 holds boxes, objectness and classes of its anchors. Its classes are sigmoids, so
an anchor may have several, but they are trained at matched anchors alone; the background is left to
an objectness loss. As with YOLOX, a ranking of the product that is shown trains both.
"""

import torch
from torch import Tensor

from .joint_scores import NoObjectnessLoss, joint_logits

#: Channels of an anchor before its classes: the box, and the objectness.
_BOX, _OBJECTNESS = 4, 1


class JointMapTargets:
    """Put between ``ListwiseMixin`` and YOLOv3: calls ``loss_cls`` on all.

    Positives are the anchors that YOLOv3 matches; those that it leaves out, since they lie on an
    object that another anchor has, are left out here.
    The host's own call on the matched anchors is dropped.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.loss_conf = NoObjectnessLoss()
        self._assigned: list[tuple[Tensor, Tensor]] = []

    def get_targets(self, *args, **kwargs) -> tuple:
        """Maps of targets and of negatives of each level, as the host's."""
        targets = super().get_targets(*args, **kwargs)
        self._assigned = list(zip(*targets))
        return targets

    def loss_by_feat(self, pred_maps: list[Tensor], *args, **kwargs) -> dict:
        """Losses of YOLOv3 without that of the objectness."""
        losses = super().loss_by_feat(pred_maps, *args, **kwargs)
        assigned, self._assigned = self._assigned, []
        self.loss_cls.open()
        first = _BOX + _OBJECTNESS
        for pred, (target, negative) in zip(pred_maps, assigned):
            rows = pred.permute(0, 2, 3, 1).reshape(-1, self.num_attrib)
            target = target.flatten(0, 1)
            matched = target[:, _BOX] > 0
            losses['loss_cls'] = self.loss_cls(
                joint_logits(rows[:, first:], rows[:, _BOX:first]),
                torch.where(matched, target[:, first:].argmax(1), self.num_classes),
                (matched | (negative.flatten() > 0)).to(rows.dtype),
            )
        losses.pop('loss_conf')
        return losses


class JointMapPredictions:
    """Put before ``ListwiseMixin``: the scores it centres are joint ones."""

    def predict_by_feat(self, pred_maps: list[Tensor], *args, **kwargs):
        """Predictions by the joint score, their objectness a sure 1."""
        joint = [self._joint_map(pred) for pred in pred_maps]
        return super().predict_by_feat(joint, *args, **kwargs)

    def _joint_map(self, pred: Tensor) -> Tensor:
        boxes, objectness, classes = self._of_anchors(pred).split(
            [_BOX, _OBJECTNESS, self.num_classes], 2
        )
        joint = joint_logits(classes, objectness)
        sure = torch.full_like(objectness, torch.inf)
        return torch.cat([boxes, sure, joint], 2).flatten(1, 2)

    def _of_anchors(self, pred: Tensor) -> Tensor:
        return pred.unflatten(1, (self.num_base_priors, self.num_attrib))

    def _subtract(self, scores: Tensor, centre: Tensor) -> Tensor:
        """Subtract from the classes of (N, A * (5 + C), H, W)."""
        maps = self._of_anchors(scores).clone()
        centre = centre.to(maps.dtype)[:, None, None]
        maps[:, :, _BOX + _OBJECTNESS :] -= centre
        return maps.flatten(1, 2)

    @staticmethod
    def _box_keys(losses: dict) -> list[str]:
        return ['loss_xy', 'loss_wh']
