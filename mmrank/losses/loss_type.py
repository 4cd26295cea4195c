"""The class of a loss that a config names, and the settings it takes."""

import inspect
from collections.abc import Mapping
from difflib import get_close_matches

from torch import nn

from mmrank.losses.long_tail.base import ClassCountLoss
from mmrank.losses.ranking.base import RankingLoss
from mmrank.registry import MODELS


def model_type(named: str | type):
    """Look up what a config means by ``type``.

    Args:
        named: Name with its scope, or the class, as in pure-Python configs.

    Returns:
        The class or function; None if there is none of that name. Without mmengine, which has the
        registry, the name itself.
    """
    if not (isinstance(named, str) and hasattr(MODELS, 'get')):
        return named
    # As when it is built: also in the registry of the default scope.
    with MODELS.switch_scope_and_registry(None) as registry:
        return registry.get(named)


def loss_type(field: str, config: Mapping):
    """Look up the class of a loss.

    Args:
        field: Where the config stands, for the message.
        config: Config of the loss.

    Returns:
        The class or function.

    Raises:
        KeyError: If the config has no type, or none that is registered.
    """
    named = config.get('type')
    if named is None:
        raise KeyError(
            f'{field}={dict(config)!r} has no type; write for example '
            "dict(type='mmrank.StableAPLoss')"
        )
    found = model_type(named)
    if found is None:
        raise KeyError(
            f'{field}.type={named!r} is not registered{_similar(named)}. Fix: '
            "write it with its scope, as in 'mmrank.StableAPLoss'. A loss of "
            'your own needs @MODELS.register_module() and, in the config, '
            "custom_imports = dict(imports=['my_losses']), the module it is "
            'in, which has to lie on PYTHONPATH'
        )
    return found


def _similar(named: object) -> str:
    name = str(named).rpartition('.')[2]
    found = get_close_matches(name, MODELS.module_dict, n=1)
    return f" (there is 'mmrank.{found[0]}')" if found else ''


def build_loss(field: str, config: Mapping, num_classes: int | None = None) -> nn.Module:
    """Build a loss, the number of classes filled in.

    Args:
        field: Where the config stands, for messages.
        config: Config of the loss.
        num_classes: See :func:`with_num_classes`.

    Returns:
        The loss.

    Raises:
        KeyError: If the config has no type, or none that is registered.
    """
    return MODELS.build(with_num_classes(field, config, num_classes))


def with_num_classes(field: str, config: Mapping, num_classes: int | None) -> dict:
    """Config of a loss with the number of classes, if it takes one.

    Args:
        field: Where the config stands, for messages.
        config: Config of the loss.
        num_classes: Number of classes of the head, None if it is not set.

    Returns:
        A copy, with ``num_classes`` for losses of mmrank that rank or count classes and take it.
        Values of the config take precedence.

    Raises:
        KeyError: If the config has no type, or none that is registered.
    """
    found = loss_type(field, config)
    if num_classes is None or not _takes_num_classes(found):
        return dict(config)
    return {'num_classes': num_classes, **config}


def _takes_num_classes(found) -> bool:
    if not (inspect.isclass(found) and issubclass(found, (RankingLoss, ClassCountLoss))):
        return False
    return any(
        p.name == 'num_classes' or p.kind is p.VAR_KEYWORD
        for p in inspect.signature(found).parameters.values()
    )
