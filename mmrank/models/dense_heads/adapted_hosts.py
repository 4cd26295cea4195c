"""Mixins for heads of mmdet that show a score which no loss of theirs sees alone.

YOLOX and YOLOv3 train their classes at matched places alone and leave the background to an
objectness loss. The score they show is ``sigmoid(class) * sigmoid(objectness)``; a ranking of its
logit over all places trains both, and no objectness loss is left. SSD has a softmax with a
background.
"""

import torch
from torch import Tensor, nn

from mmrank.registry import MODELS
from mmrank.tensors import at_least_float32

#: Channels of an anchor of YOLOv3 before its classes: the box, and the objectness.
_BOX, _OBJECTNESS = 4, 1


def joint_logits(classes: Tensor, objectness: Tensor) -> Tensor:
    """Logit of ``sigmoid(classes) * sigmoid(objectness)``, at least float32, without overflow.

    ``-log(exp(-c) + exp(-o) + exp(-c - o))``, which orders boxes and classes as the product does,
    of (N, C, H, W) and (N, 1, H, W) raw scores, or others that broadcast.
    """
    classes = at_least_float32(classes)
    objectness = objectness.to(classes.dtype)
    either = torch.logaddexp(-classes, -objectness)
    return -torch.logaddexp(either, -classes - objectness)


class NoObjectnessLoss(nn.Module):
    """Takes the place of an objectness loss: the ranking trains the objectness."""

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return a scalar 0."""
        return pred.new_zeros(())


class _RecordingSampler:
    """Keeps the indices that a sampler selected last, with their labels.

    The host's targets are IoU times one-hot labels: a point whose box misses its object by far has
    lost its class there.
    """

    def __init__(self, sampler) -> None:
        self.sampler = sampler
        self.last = None

    def sample(self, *args, **kwargs):
        result = self.sampler.sample(*args, **kwargs)
        self.last = result.pos_inds, result.pos_gt_labels
        return result


class JointTargets:
    """Mixin between ``ListwiseMixin`` and YOLOX: calls ``loss_cls`` on all points.

    The host's own call on the matched points is dropped.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.loss_obj = NoObjectnessLoss()
        if hasattr(self, 'sampler'):
            self.sampler = _RecordingSampler(self.sampler)
        self._assigned: list[Tensor] = []

    def _get_targets_single(self, *args, **kwargs) -> tuple:
        self.sampler.last = None
        targets = super()._get_targets_single(*args, **kwargs)
        labels = targets[0].new_full(targets[0].shape, self.num_classes, dtype=torch.long)
        # An image without objects is never sampled.
        if self.sampler.last is not None:
            index, classes = self.sampler.last
            labels[index] = classes
        self._assigned.append(labels)
        return targets

    def loss_by_feat(self, cls_scores, bbox_preds, objectnesses, *args, **kwargs) -> dict:
        """Losses of YOLOX without the objectness loss."""
        self._assigned = []
        losses = super().loss_by_feat(cls_scores, bbox_preds, objectnesses, *args, **kwargs)
        rows = [
            joint_logits(*pair).permute(0, 2, 3, 1).flatten(1, 2)
            for pair in zip(cls_scores, objectnesses)
        ]
        labels = torch.cat(self._assigned)
        self._assigned = []
        self.loss_cls.open()
        losses['loss_cls'] = self.loss_cls(torch.cat(rows, 1).flatten(0, 1), labels, avg_factor=1.0)
        losses.pop('loss_obj')
        return losses


class JointPredictions:
    """Mixin before ``ListwiseMixin`` for YOLOX: the scores it centres are joint ones."""

    def predict_by_feat(self, cls_scores, bbox_preds, objectnesses, *args, **kwargs):
        """Predictions by the joint score, their objectness a sure 1."""
        joint = [joint_logits(*p) for p in zip(cls_scores, objectnesses)]
        sure = [torch.full_like(x, torch.inf) for x in objectnesses]
        return super().predict_by_feat(joint, bbox_preds, sure, *args, **kwargs)


class JointMapTargets:
    """Mixin between ``ListwiseMixin`` and YOLOv3: calls ``loss_cls`` on all anchors.

    Positives are the anchors that YOLOv3 matches; those that it leaves out, since they lie on an
    object that another anchor has, are left out here. The host's own call on the matched anchors is
    dropped.
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
        """Losses of YOLOv3 without the objectness loss."""
        losses = super().loss_by_feat(pred_maps, *args, **kwargs)
        assigned = self._assigned
        self._assigned = []
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
    """Mixin before ``ListwiseMixin`` for YOLOv3: the scores it centres are joint ones."""

    def predict_by_feat(self, pred_maps: list[Tensor], *args, **kwargs):
        """Predictions by the joint score, their objectness a sure 1."""
        joint = [self._joint_map(pred) for pred in pred_maps]
        return super().predict_by_feat(joint, *args, **kwargs)

    def _joint_map(self, pred: Tensor) -> Tensor:
        sizes = [_BOX, _OBJECTNESS, self.num_classes]
        boxes, objectness, classes = self._of_anchors(pred).split(sizes, 2)
        joint = joint_logits(classes, objectness)
        sure = torch.full_like(objectness, torch.inf)
        return torch.cat([boxes, sure, joint], 2).flatten(1, 2)

    def _of_anchors(self, pred: Tensor) -> Tensor:
        return pred.unflatten(1, (self.num_base_priors, self.num_attrib))

    def _subtract(self, scores: Tensor, centre: Tensor) -> Tensor:
        """Subtract from the classes of (N, A * (5 + C), H, W)."""
        maps = self._of_anchors(scores).clone()
        maps[:, :, _BOX + _OBJECTNESS :] -= centre.to(maps.dtype)[:, None, None]
        return maps.flatten(1, 2)

    @staticmethod
    def _box_keys(losses: dict) -> list[str]:
        return ['loss_xy', 'loss_wh']


class SigmoidSSD:
    """Mixin between ``ListwiseMixin`` and SSD: one sigmoid a class, and losses to call.

    SSD computes its losses itself, the classification over the positives and three times as many
    negatives, which a softmax with a background finds. A ranking takes all anchors and has no
    background. The box loss is by default SSD's, smooth L1 with ``train_cfg.smoothl1_beta``.
    """

    def __init__(self, *args, loss_cls: dict, loss_bbox: dict | None = None, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.use_sigmoid_cls = True
        self.loss_cls = MODELS.build(loss_cls)
        if loss_bbox is None:
            beta = (self.train_cfg or {}).get('smoothl1_beta', 1.0)
            loss_bbox = dict(type='mmdet.SmoothL1Loss', beta=beta)
        self.loss_bbox = MODELS.build(loss_bbox)

    def _init_layers(self) -> None:
        self.cls_out_channels = self.num_classes
        super()._init_layers()

    def loss_by_feat_single(
        self,
        cls_score: Tensor,
        bbox_pred: Tensor,
        anchor: Tensor,
        labels: Tensor,
        label_weights: Tensor,
        bbox_targets: Tensor,
        bbox_weights: Tensor,
        avg_factor: float,
    ) -> tuple[Tensor, Tensor]:
        """Classification and box loss, scalars, of the (n, ...) anchors of one image."""
        loss_cls = self.loss_cls(cls_score, labels, label_weights, avg_factor=avg_factor)
        if self.reg_decoded_bbox:
            bbox_pred = self.bbox_coder.decode(anchor, bbox_pred)
        loss_bbox = self.loss_bbox(bbox_pred, bbox_targets, bbox_weights, avg_factor=avg_factor)
        return loss_cls, loss_bbox
