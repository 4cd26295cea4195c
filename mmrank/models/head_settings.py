"""Settings of a loss that the head knows."""

import inspect

from mmrank.losses.long_tail.class_count_loss import ClassCountLoss
from mmrank.losses.ranking.ranking_loss import takes_num_classes
from mmrank.registry import MODELS


def model_type(named: str | type):
    """What a config means: a registered name, or the class itself.

    Args:
        named: Name with its scope, or the class, as in pure-Python configs.

    Returns:
        The class or function; None if there is none of that name.
    """
    return MODELS.get(named) if isinstance(named, str) else named


def _loss_type(field: str, loss: dict):
    """The class of a loss, or an error that names the field."""
    loss_type = model_type(loss['type'])
    if loss_type is None:
        raise KeyError(
            f'{field}.type={loss["type"]!r} is not registered; write it with '
            "its scope, as in 'mmrank.StableAPLoss'"
        )
    return loss_type


def with_num_classes(loss: dict, num_classes: int | None) -> dict:
    """Config of a loss with the number of classes, if it takes one.

    Args:
        loss: Config of the loss.
        num_classes: Number of classes of the head, None if it is not set.

    Returns:
        The config, for losses of mmrank that rank or count classes with
        ``num_classes``. Values of the config take precedence.

    Raises:
        KeyError: If the loss is not registered.
    """
    loss_type = _loss_type('loss', loss)
    takes = takes_num_classes(loss_type) or (
        inspect.isclass(loss_type) and issubclass(loss_type, ClassCountLoss)
    )
    if num_classes is None or not takes:
        return loss
    return {'num_classes': num_classes, **loss}


def with_head_settings(loss_cls: dict, num_classes: int | None) -> dict:
    """Config of a loss, completed with the settings of its detector head.

    Args:
        loss_cls: Config of the loss.
        num_classes: Number of classes of the head, None if it is not set.

    Returns:
        A copy with ``use_sigmoid=True`` and, for ranking losses that take
        it, ``num_classes``. Values of the config take precedence.

    Raises:
        KeyError: If the loss is not registered.
    """
    loss_type = _loss_type('loss_cls', loss_cls)
    settings = dict(use_sigmoid=True)
    if num_classes is not None and takes_num_classes(loss_type):
        settings['num_classes'] = num_classes
    return {**settings, **loss_cls}
