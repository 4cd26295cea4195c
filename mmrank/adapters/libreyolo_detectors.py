"""YOLO heads of LibreYOLO on a ranking loss. Its DETRs are in :mod:`.query_detectors`."""

from functools import partial

from libreyolo.models.yolo9.nn import DDetect  # pyright: ignore[reportMissingImports]  # where the user has it
from torch import Tensor

from mmrank.losses import HeadLoss

from .class_part import MadePart, RankingSettings, check_objects, loss_of_targets, put_rankings
from .detectors import check_fit


class _RankingHead(MadePart, DDetect):
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

    def leave(self, model) -> None:
        super().leave(model)
        self._loss_fn = None


def _rank(ranking: HeadLoss, logits: Tensor, targets: Tensor, norm: Tensor) -> Tensor:
    return loss_of_targets(ranking, logits, targets)


def attach(model, settings: RankingSettings) -> None:
    """Put a copy of the loss into each head for each branch."""
    check_fit(settings, model.nc, type(model).__name__)
    heads: list[DDetect] = [x for x in model.modules() if isinstance(x, DDetect)]
    for head in heads:
        layers = {'dense_loss': [x[-1] for x in head.cv3]}
        if hasattr(head, 'one2one_cv3'):
            layers['exclusive_loss'] = [x[-1] for x in head.one2one_cv3]
        put_rankings(head, _RankingHead, layers, settings, _loss_fn=None)
