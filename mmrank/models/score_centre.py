"""The centre of the scores of a ranking loss, in the predictions of a head."""

import copy
import inspect
import logging
from collections.abc import Callable, Mapping

from mmengine.logging import print_log
from torch import Tensor, nn

from mmrank.losses.protocols import HasLogitCentre


def score_centre(loss: nn.Module) -> Tensor | None:
    """Raw score, (1,) or (C,), that heads show as 0.5; None if the loss does not say."""
    return loss.logit_centre() if isinstance(loss, HasLogitCentre) else None


def without_threshold(
    predict: Callable[..., list],
    args: tuple,
    kwargs: Mapping,
    *,
    cfg: str,
    default: Mapping | None,
    loss: nn.Module,
    warn: bool,
) -> list | None:
    """Predict again where no score of a loss without a centre is high enough.

    A ranking loss does not care where its scores are. Without a centre a threshold may drop every
    box, though their order is right. ``cfg`` names the argument of ``predict_by_feat`` with
    ``score_thr``; where it is None, ``default`` is used. Returns None where there is no threshold
    to leave out.
    """
    bound = inspect.signature(predict).bind(*args, **kwargs)
    settings = bound.arguments.get(cfg) or default
    if not (settings or {}).get('score_thr'):
        return None
    if warn:
        name = type(loss).__name__
        print_log(
            f'No score of a batch reaches score_thr={settings["score_thr"]}: {name} has no '
            'logit_centre(), so the scores are wherever training left them. The threshold is left '
            f'out where it drops everything. Fix: let {name}.logit_centre() return the mean raw '
            'score of the positives, or set test_cfg.score_thr=0',
            logger='current',
            level=logging.WARNING,
        )
    settings = copy.deepcopy(settings)
    settings['score_thr'] = 0.0
    bound.arguments[cfg] = settings
    return predict(*bound.args, **bound.kwargs)
