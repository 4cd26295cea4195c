"""What the adapters of torchvision's detectors share."""

from mmrank.distributed import training_group
from mmrank.imports import required_package
from mmrank.losses import HeadLoss
from mmrank.losses.ranking.rank_sort import with_balanced_boxes

from .class_part import MadePart

with required_package(
    'torchvision',
    "The adapter of torchvision's detectors",
    'install the torchvision that fits your torch, see pytorch.org',
):
    import torchvision  # noqa: F401


class TorchvisionPart(MadePart):
    """Mixin for the heads of a detector. Their one loss is ``ranking_loss``."""

    balance_boxes: bool

    @property
    def ranking_loss(self) -> HeadLoss:
        return self.rankings['all']

    def balanced(self, losses: dict, class_key: str, box_key: str) -> dict:
        """The losses, the box loss scaled where the settings say so."""
        if not self.balance_boxes:
            return losses
        return with_balanced_boxes(losses, [class_key], [box_key], training_group(self))
