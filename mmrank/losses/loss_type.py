"""The class of a loss that a config names, and the settings it takes."""

import inspect
from collections.abc import Mapping
from difflib import get_close_matches

from torch import nn

from mmrank.errors import UserKeyError
from mmrank.losses.interface import HeadLoss
from mmrank.losses.pointwise.base import PointwiseLoss
from mmrank.registry import MODELS


def model_type(named: str | type):
    """Class or function that a config means by ``type``, a name with its scope or the class itself.

    None if there is none of that name. Without mmengine, which has the registry, the name.
    """
    if not (isinstance(named, str) and hasattr(MODELS, 'get')):
        return named
    # As when it is built: also in the registry of the default scope.
    with MODELS.switch_scope_and_registry(None) as registry:
        return registry.get(named)


def loss_type(field: str, config: Mapping):
    """Class of the loss of a config that stands at ``field``; KeyError if there is none."""
    named = config.get('type')
    if named is None:
        raise KeyError(
            f'{field}={dict(config)!r} has no type; write for example '
            "dict(type='mmrank.StableAPLoss')"
        )
    found = model_type(named)
    if found is None:
        raise UserKeyError(
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
    """Build a loss, the number of classes filled in; see :func:`with_num_classes`."""
    return MODELS.build(with_num_classes(field, config, num_classes))


def with_num_classes(field: str, config: Mapping, num_classes: int | None) -> dict:
    """Copy of a config with ``num_classes`` of the head, if mmrank's loss takes it.

    Values of the config take precedence. Raises KeyError as :func:`loss_type` does.
    """
    found = loss_type(field, config)
    if num_classes is None or not _takes_num_classes(found):
        return dict(config)
    return {'num_classes': num_classes, **config}


def _takes_num_classes(found) -> bool:
    if not (inspect.isclass(found) and issubclass(found, (HeadLoss, PointwiseLoss))):
        return False
    return 'num_classes' in inspect.signature(found).parameters
