"""Mixins for YOLOX of mmdet, which shows a score that no loss of its own sees alone.

YOLOX trains its classes at matched points alone and leaves the background to an objectness loss.
The score it shows is ``sigmoid(class) * sigmoid(objectness)``; a ranking of its logit over all
points trains both, and no objectness loss is left.
"""

import torch
from torch import Tensor, nn

from mmrank.tensors import at_least_float32


def _joint_logits(classes: Tensor, objectness: Tensor) -> Tensor:
    """Logit of ``sigmoid(classes) * sigmoid(objectness)``, at least float32, without overflow.

    ``-log(exp(-c) + exp(-o) + exp(-c - o))``, which orders boxes and classes as the product does,
    of (N, C, H, W) and (N, 1, H, W) raw scores, or others that broadcast.
    """
    classes = at_least_float32(classes)
    objectness = objectness.to(classes.dtype)
    either = torch.logaddexp(-classes, -objectness)
    return -torch.logaddexp(either, -classes - objectness)


class _NoObjectnessLoss(nn.Module):
    """Takes the place of an objectness loss: the ranking trains the objectness."""

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
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
        self.loss_obj = _NoObjectnessLoss()
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
        self._assigned = []
        losses = super().loss_by_feat(cls_scores, bbox_preds, objectnesses, *args, **kwargs)
        rows = [
            _joint_logits(*pair).permute(0, 2, 3, 1).flatten(1, 2)
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
        joint = [_joint_logits(*p) for p in zip(cls_scores, objectnesses)]
        sure = [torch.full_like(x, torch.inf) for x in objectnesses]
        return super().predict_by_feat(joint, bbox_preds, sure, *args, **kwargs)
