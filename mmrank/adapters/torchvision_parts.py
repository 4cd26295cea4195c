"""What the adapters of torchvision's detectors share."""

import copy

from torch import nn

from mmrank.distributed import training_group
from mmrank.imports import required_package
from mmrank.losses import HeadLoss
from mmrank.losses.ranking.rank_sort import with_balanced_boxes
from mmrank.made_class import MadeClass

from .detectors import RankingSettings

with required_package(
    'torchvision',
    "The adapter of torchvision's detectors",
    'install the torchvision that fits your torch, see pytorch.org',
):
    import torchvision  # noqa: F401


class RankingPart(MadeClass):
    """Mixin for the heads of a detector: their class loss becomes ``ranking_loss``.

    It is a module of the head, and so saved with it.
    """

    ranking_loss: HeadLoss
    centre_scores: bool
    balance_boxes: bool

    def balanced(self, losses: dict, class_key: str, box_key: str) -> dict:
        """The losses, the box loss scaled where the settings say so."""
        if not self.balance_boxes:
            return losses
        return with_balanced_boxes(losses, [class_key], [box_key], training_group(self))


def put_loss(
    part: nn.Module, mixin: type[RankingPart], settings: RankingSettings, layer: nn.Module
) -> None:
    """Add the mixin to ``part``, and a copy of the loss where ``layer`` is.

    Its class changes; a module around it would change the keys of ``state_dict``.
    """
    part.__class__ = mixin.class_for(type(part))
    device = layer.weight.device
    part.ranking_loss = copy.deepcopy(settings.loss).to(device).train(part.training)
    part.centre_scores = settings.centre_scores
    part.balance_boxes = settings.balance_boxes


def take_loss(part: nn.Module) -> None:
    """Undo :func:`put_loss`."""
    part.__class__ = part.host
    del part.ranking_loss, part.centre_scores, part.balance_boxes
