"""Heads whose class and box part are weighted against each other."""

from mmrank.distributed import training_group
from mmrank.losses.ranking.rank_sort import balanced_parts
from mmrank.made_class import MadeClass
from mmrank.state.gradient_balance import build_balance


class BalancedHead(MadeClass):
    """Mixin for heads with a class part and a box part.

    Args:
        balance_boxes: Multiply the box part by the detached ratio of the losses.
        balance_gradients: Scale the class part by :class:`mmrank.state.GradientBalance`.
    """

    def __init__(
        self, *args, balance_boxes: bool = False, balance_gradients: float | None = None, **kwargs
    ) -> None:
        super().__init__(*args, **kwargs)
        self.gradient_balance = build_balance(balance_gradients, balance_boxes)
        self.balance_boxes = balance_boxes

    def _watched(self, features):
        """The features that both parts share, for the balance of their gradients."""
        return features if self.gradient_balance is None else self.gradient_balance.watch(features)

    def _balanced(self, losses: dict, cls_keys: list[str], box_keys: list[str]) -> dict:
        """Copy the losses, one part scaled if the config says so; ``class_factor`` for the log."""
        balance = self.gradient_balance
        group = training_group(self)
        losses = balanced_parts(losses, cls_keys, box_keys, self.balance_boxes, balance, group)
        if balance is not None:
            losses['class_factor'] = balance.current()
        return losses
