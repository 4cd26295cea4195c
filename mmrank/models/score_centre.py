"""Heads on a ranking loss: the centre of their scores, and the weight of their box loss."""

import copy
import inspect
import logging
from collections.abc import Callable

from mmengine.logging import print_log
from torch import Tensor, nn

from mmrank.distributed import training_group
from mmrank.losses.protocols import HasLogitCentre
from mmrank.losses.ranking.rank_sort import with_balanced_boxes
from mmrank.made_class import MadeClass


def score_centre(loss: nn.Module) -> Tensor | None:
    """Raw score, (1,) or (C,), that heads show as 0.5; None if the loss does not say."""
    return loss.logit_centre() if isinstance(loss, HasLogitCentre) else None


class BoxesWithoutCentre:
    """Mixin for heads: shows boxes also where no score of a loss without a centre is high enough.

    A ranking loss does not care where its scores are. Without a centre a threshold may drop every
    box, though their order is right.
    """

    _warned = False

    def _predict_boxes(
        self, loss: nn.Module, predict: Callable, args: tuple, kwargs: dict, cfg: str, default
    ) -> list:
        """Call ``predict``, without a threshold that drops every box of a loss without a centre.

        ``cfg`` names its argument with ``score_thr``; where it is None, ``default`` is used.
        """
        results = predict(*args, **kwargs)
        if score_centre(loss) is not None or any(map(len, results)):
            return results
        bound = inspect.signature(predict).bind(*args, **kwargs)
        settings = bound.arguments.get(cfg) or default
        if not (settings or {}).get('score_thr'):
            return results
        if not self._warned:
            self._warned = True
            name = type(loss).__name__
            print_log(
                f'No score of a batch reaches score_thr={settings["score_thr"]}: {name} has no '
                'logit_centre(), so the scores are wherever training left them. The threshold is '
                f'left out where it drops everything. Fix: let {name}.logit_centre() return the '
                'mean raw score of the positives, or set test_cfg.score_thr=0',
                logger='current',
                level=logging.WARNING,
            )
        settings = copy.deepcopy(settings)
        settings['score_thr'] = 0.0
        bound.arguments[cfg] = settings
        return predict(*bound.args, **bound.kwargs)


class BalancedHead(MadeClass):
    """Mixin for heads: ``balance_boxes`` multiplies the box part by the ratio of the losses."""

    def __init__(self, *args, balance_boxes: bool = False, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.balance_boxes = balance_boxes

    def _balanced(self, losses: dict, cls_keys: list[str], box_keys: list[str]) -> dict:
        if not self.balance_boxes:
            return losses
        return with_balanced_boxes(losses, cls_keys, box_keys, training_group(self))
