"""Detectors of Ultralytics, such as YOLO11 and YOLO26, on a ranking loss.

Ultralytics is under AGPL-3.0: it is imported where the user has it, and none of its code is here.
"""

import copy
from functools import partial

from torch import Tensor, nn

from mmrank.errors import UserError, UserTypeError
from mmrank.losses import HeadLoss
from mmrank.made_class import MadeClass

from .class_part import ClassPart, keep_centred, put_rankings
from .detectors import RankingSettings, check_ranks, check_settings
from .label_ranges import check_objects


class _RankingModel(MadeClass):
    """Mixin for models. ``rankings`` has the loss of each branch of the head."""

    def init_criterion(self):
        criterion = super().init_criterion()
        for name, ranking in self.rankings.items():
            branch = getattr(criterion, name, criterion)
            if branch.class_weights is not None:
                raise UserError('cls_pw weighs the classes; a ranking does not. Fix: cls_pw=0')
            branch.bce = partial(_rank, ranking)
        return criterion

    def loss(self, batch: dict, preds=None) -> tuple:
        check_objects([batch['cls']], [batch['bboxes']], self.model[-1].nc, 'nc')
        return super().loss(batch, preds)


def _rank(ranking: HeadLoss, logits: Tensor, targets: Tensor) -> Tensor:
    """In the place of ``bce``, whose sum a criterion divides by the sum of the targets."""
    return ClassPart.of_targets(logits, targets).loss(ranking) * targets.sum().clamp(min=1)


def attach(model: nn.Module, settings: RankingSettings) -> None:
    """Put copies of the loss into a model, see :func:`mmrank.adapters.use_ranking_loss`."""
    head = model.model[-1]
    name = type(model).__name__
    branches = {'one2many': 'cv3', 'one2one': 'one2one_cv3'}
    layers = {x: [y[-1] for y in getattr(head, key, ())] for x, key in branches.items()}
    layers = {x: found for x, found in layers.items() if found}
    check_ranks(model, isinstance(model, _RankingModel), False)
    if not layers or layers['one2many'][0].out_channels != head.nc:
        raise UserTypeError(
            f'the head {type(head).__name__} of {name} has no adapter. Fix: a model with a Detect '
            'head, such as yolo11n.yaml or yolo26n.yaml'
        )
    check_settings(settings, head.nc, name)
    model.__class__ = _RankingModel.class_for(type(model))
    put_rankings(model, {x: copy.deepcopy(settings.loss) for x in layers}, layers, settings)
    model.criterion = None


def detach(model: nn.Module) -> None:
    """Undo :func:`attach`; the centre moves into the bias of the scores."""
    check_ranks(model, isinstance(model, _RankingModel), True)
    keep_centred(model)
    del model.rankings
    model.__class__ = model.host
    model.criterion = None
