"""YOLO heads of LibreYOLO on a ranking loss. Its DETRs are in :mod:`.query_detectors`."""

import copy
from functools import partial

from libreyolo.models.yolo9.nn import DDetect
from torch import Tensor, nn

from mmrank.losses import HeadLoss
from mmrank.made_class import MadeClass

from .class_part import ClassPart, keep_centred, put_rankings
from .detectors import RankingSettings, check_ranks, check_settings
from .label_ranges import check_objects


class _RankingHead(MadeClass):
    """Mixin for heads. ``rankings`` has the loss of each branch."""

    def _get_loss_fn(self, device):
        if self._loss_fn is None:
            criterion = super()._get_loss_fn(device)
            for name, ranking in self.rankings.items():
                getattr(criterion, name, criterion).cls_loss = partial(_rank, ranking)
        return self._loss_fn

    def forward(self, x: list[Tensor], targets: Tensor | None = None, img_size=None):
        if targets is not None:
            objects = targets[targets[..., 3] > 0]  # the others fill up
            check_objects([objects[:, 0]], [objects[:, 1:]], self.nc, 'nb_classes')
        return super().forward(x, targets, img_size)


def _rank(ranking: HeadLoss, logits: Tensor, targets: Tensor, norm: Tensor) -> Tensor:
    return ClassPart.of_targets(logits, targets).loss(ranking)


def attach(model: nn.Module, settings: RankingSettings) -> None:
    """Put copies of the loss into the heads, see :func:`mmrank.adapters.use_ranking_loss`."""
    check_ranks(model, isinstance(model.head, _RankingHead), False)
    check_settings(settings, model.nc, type(model).__name__)
    for head in _heads(model):
        layers = {'dense_loss': [x[-1] for x in head.cv3]}
        if hasattr(head, 'one2one_cv3'):
            layers['exclusive_loss'] = [x[-1] for x in head.one2one_cv3]
        head.__class__ = _RankingHead.class_for(type(head))
        head._loss_fn = None
        put_rankings(head, {x: copy.deepcopy(settings.loss) for x in layers}, layers, settings)


def detach(model: nn.Module) -> None:
    """Undo :func:`attach`; the centre moves into the bias of the scores."""
    check_ranks(model, isinstance(model.head, _RankingHead), True)
    for head in _heads(model):
        keep_centred(head)
        del head.rankings
        head.__class__ = head.host
        head._loss_fn = None


def _heads(model: nn.Module) -> list[nn.Module]:
    return [x for x in model.modules() if isinstance(x, DDetect)]
