"""Head that scores each class independently of the others."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmrank.errors import UserError
from mmrank.losses.base import HeadLoss
from mmrank.losses.pointwise.base import PointwiseLoss
from mmrank.losses.protocols import KeepsSampleState
from mmrank.losses.registered import build_loss
from mmrank.models.features import feature_rows
from mmrank.registry import MODELS
from mmrank.settings import check_count
from mmrank.tensors import at_least_float32
from mmrank.training_set import TrainingSet

from .sample_fields import ids_of, one_vs_rest_targets, only_class


@MODELS.register_module()
class OneVsRestHead(BaseModule):
    """Binary, one-vs-rest and multi-label classification by sigmoid scores.

    For ``mmpretrain.ImageClassifier``. The loss sees the scores of all classes in one call: a
    ranking loss makes one ranking of them, the choice where a class has few positives in a batch,
    or with ``mode='per_class'`` one for every class. Pointwise losses work too: those of
    :class:`mmrank.losses.PointwiseLoss`, and mmpretrain's ``CrossEntropyLoss`` with
    ``use_sigmoid=True`` and ``FocalLoss``.

    Scores at test time are plain sigmoids, or softmax with ``exclusive``. A ranking loss trains an
    order, not probabilities: calibrate the scores before you use them as such, see
    :func:`mmrank.models.CalibratedModel`.

    Args:
        num_classes: Number of classes C. With 1 the problem is binary, and ``gt_label`` is 0 or 1.
        in_channels: Length of the features.
        loss: Config of the loss. ``num_classes`` is filled in for losses of mmrank whose config
            leaves it out.
        exclusive: Whether each image has exactly one class. Scores at test time are then the scores
            of a softmax, and the label is the highest one. The loss may be one of softmax.
    """

    thr = 0.5  # Lowest score of a predicted label

    def __init__(
        self, num_classes: int, in_channels: int, loss: dict, exclusive: bool = False
    ) -> None:
        super().__init__(init_cfg=dict(type='Normal', layer='Linear', std=0.01))
        check_count('num_classes', num_classes)
        if exclusive and num_classes == 1:
            what = 'exclusive=True needs num_classes of at least 2: a softmax of one class is 1'
            raise UserError(what, 'leave exclusive out')
        self.num_classes = num_classes
        self.exclusive = exclusive
        self.training_set = TrainingSet()
        self.loss_module = build_loss('loss', loss, num_classes)
        own = isinstance(self.loss_module, (HeadLoss, PointwiseLoss))
        if isinstance(self.loss_module, HeadLoss):
            self.loss_module.held_by(self)
        given = self.loss_module.num_columns if own else None
        if given not in (None, num_classes):
            what = f'num_classes={given} of the loss, but the head has num_classes={num_classes}'
            raise ValueError(f'{what}; leave it out of the loss')
        self.fc = nn.Linear(in_channels, num_classes)

    def pre_logits(self, feats: Tensor | tuple[Tensor, ...]) -> Tensor:
        """Features of the last stage, (n, in_channels)."""
        return feature_rows(feats, self.fc.in_features, 'in_channels')

    def forward(self, feats: Tensor | tuple[Tensor, ...]) -> Tensor:
        """Raw scores, (n, C)."""
        return self.fc(self.pre_logits(feats))

    def loss(self, feats: Tensor | tuple[Tensor, ...], data_samples: Sequence) -> dict[str, Tensor]:
        """``loss`` of (n, in_channels) features, or of the last entry of a tuple.

        The n data samples have ``gt_label`` or ``gt_score`` and, for losses with a state per
        sample, ``sample_idx``.
        """
        self.training_set.check_classes(self.num_classes, 'OneVsRestHead', binary=True)
        self.training_set.check_batch(len(data_samples))
        scores = self(feats)
        target = one_vs_rest_targets(data_samples, self.num_classes, scores.device)
        if self.exclusive:
            labels = only_class(target)
            # A softmax takes indices, a sigmoid of mmpretrain one column a class.
            target = target if getattr(self.loss_module, 'use_sigmoid', False) else labels
        own = isinstance(self.loss_module, (HeadLoss, PointwiseLoss))
        if not own and self.num_classes == 1:
            # mmpretrain's losses read (n, 1) targets as class indices.
            scores = scores.unsqueeze(-1)
            target = target.unsqueeze(-1)
        extra = {}
        if isinstance(self.loss_module, KeepsSampleState) and self.loss_module.keeps_samples:
            extra['sample_idx'] = ids_of(data_samples, 'sample_idx', scores.device)
        loss = self.loss_module(scores, target, avg_factor=max(len(scores), 1), **extra)
        return dict(loss=loss)

    @torch.no_grad()
    def predict(
        self, feats: Tensor | tuple[Tensor, ...], data_samples: Sequence | None = None
    ) -> Sequence:
        """Data samples, given or new, with (C,) ``pred_score``, and ``pred_label``.

        The labels are the classes with a score of at least ``thr``, or 0 or 1 where there is one
        class; the highest one with ``exclusive``.
        """
        scores = at_least_float32(self(feats))
        scores = scores.softmax(1) if self.exclusive else scores.sigmoid()
        if data_samples is None:
            from mmpretrain.structures import DataSample

            data_samples = [DataSample() for _ in scores]
        for sample, score in zip(data_samples, scores):
            found = score >= self.thr
            label = found.long() if self.num_classes == 1 else found.nonzero()
            label = score.argmax() if self.exclusive else label
            sample.set_pred_score(score).set_pred_label(label.flatten())
        return data_samples
