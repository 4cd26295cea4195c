"""Heads whose box part is weighted against their class part."""

from mmrank.distributed import training_group
from mmrank.losses.ranking.rank_sort import with_balanced_boxes
from mmrank.made_class import MadeClass


class BalancedHead(MadeClass):
    """Mixin for heads: ``balance_boxes`` multiplies the box part by the ratio of the losses."""

    def __init__(self, *args, balance_boxes: bool = False, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.balance_boxes = balance_boxes

    def _balanced(self, losses: dict, cls_keys: list[str], box_keys: list[str]) -> dict:
        if not self.balance_boxes:
            return losses
        return with_balanced_boxes(losses, cls_keys, box_keys, training_group(self))
