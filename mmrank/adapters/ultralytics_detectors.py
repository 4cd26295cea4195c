"""Detectors of Ultralytics, such as YOLO11 and YOLO26, on a ranking loss.

Ultralytics is under AGPL-3.0: it is imported where the user has it, and none of its code is here.
"""

import warnings
from functools import partial
from typing import Any

from torch import Tensor

from mmrank.errors import UserError, UserTypeError
from mmrank.losses import HeadLoss

from .class_part import MadePart, RankingSettings, check_objects, loss_of_targets, put_rankings
from .detectors import check_fit


class _RankingModel(MadePart):
    """Mixin for models. ``rankings`` has the loss of each branch of the head."""

    model: Any  # a Sequential, whose last layer is the head

    def init_criterion(self):
        criterion = super().init_criterion()  # pyright: ignore[reportAttributeAccessIssue]  # the host's
        for name, ranking in self.rankings.items():
            branch = getattr(criterion, name, criterion)
            if branch.class_weights is not None:
                raise UserError('cls_pw weighs the classes; a ranking does not. Fix: cls_pw=0')
            branch.bce = partial(_rank, ranking)
        return criterion

    def loss(self, batch: dict, preds=None) -> tuple:
        check_objects([batch['cls']], [batch['bboxes']], self.model[-1].nc, 'nc')
        return super().loss(batch, preds)  # pyright: ignore[reportAttributeAccessIssue]  # the host's


def _rank(ranking: HeadLoss, logits: Tensor, targets: Tensor) -> Tensor:
    """Replaces ``bce``: the criterion divides its sum by the sum of the targets."""
    return loss_of_targets(ranking, logits, targets) * targets.sum().clamp(min=1)


def attach(model, settings: RankingSettings) -> None:
    """Put a copy of the loss into a model for each branch."""
    head = model.model[-1]
    name = type(model).__name__
    branches = {'one2many': 'cv3', 'one2one': 'one2one_cv3'}
    layers = {x: [y[-1] for y in getattr(head, key, ())] for x, key in branches.items()}
    layers = {x: found for x, found in layers.items() if found}
    if not layers or layers['one2many'][0].out_channels != head.nc:
        what = f'the head {type(head).__name__} of {name} has no adapter'
        fix = 'a model with a Detect head, such as yolo11n.yaml or yolo26n.yaml'
        raise UserTypeError(what, fix)
    check_fit(settings, head.nc, name)
    if hasattr(model, 'task'):  # set by a YOLO
        what = 'YOLO.train builds another model, which would train on its own loss'
        fix = 'train(trainer=...), see docs/pages/users/other_detectors.md; a loop of yours works'
        warnings.warn(f'{what}. Fix: {fix}', stacklevel=3)
    # The criterion is made when there is none.
    put_rankings(model, _RankingModel, layers, settings, criterion=None)
