"""Predictions of a head whose loss does not say where its scores are."""

import copy
import inspect
import logging
from collections.abc import Callable, Mapping

from mmengine.logging import print_log
from torch import nn


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
    """Predict again where no score of an uncentred loss is high enough.

    A ranking loss does not care where its scores are. Without a centre a threshold may drop every
    box, though their order is right.

    Args:
        predict: ``predict_by_feat`` of the host head.
        args: Its arguments, which have led to no box.
        kwargs: Likewise.
        cfg: Name of the argument with ``score_thr``.
        default: The config that is used where the argument is None.
        loss: What has no ``logit_centre()``.
        warn: Whether to say so.

    Returns:
        The predictions; None where there is no threshold to leave out.
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
