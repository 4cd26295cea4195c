"""Registers the losses, and builds the one that a config names.

mmengine imports this when a config names a loss; losses themselves need torch alone.
"""

from collections.abc import Mapping
from difflib import get_close_matches

from torch import nn

from mmrank import losses
from mmrank.errors import UserKeyError, UserTypeError
from mmrank.losses.base import HeadLoss
from mmrank.losses.pointwise.base import PointwiseLoss
from mmrank.registry import MODELS
from mmrank.settings import NamedSettings, settings_of

#: Bases of losses of your own, and what a loop of your own calls.
_NOT_IN_CONFIGS = {
    'ClassCountLoss',
    'ContrastiveLoss',
    'EmbeddingLoss',
    'ErrorDrivenLoss',
    'HeadLoss',
    'PointwiseLoss',
    'RankingLoss',
    'StatelessRankingLoss',
}

for _name in losses.__all__:
    if _name.endswith('Loss') and _name not in _NOT_IN_CONFIGS:
        _loss = getattr(losses, _name)
        if issubclass(_loss, nn.Module):
            MODELS.register_module(module=_loss)


def model_type(named: str | type):
    """Class or function that a config means by ``type``, a name with its scope or the class itself.

    None if there is none of that name. Without mmengine, which has the registry, the name.
    """
    if not (isinstance(named, str) and hasattr(MODELS, 'get')):
        return named
    # As when it is built: also in the registry of the default scope.
    with MODELS.switch_scope_and_registry(None) as registry:
        return registry.get(named)


def _loss_type(field: str, config: Mapping):
    """Class of the loss of a config that stands at ``field``; KeyError if there is none."""
    named = config.get('type')
    if named is None:
        example = "dict(type='mmrank.StableAPLoss')"
        raise KeyError(f'{field}={dict(config)!r} has no type; write for example {example}')
    loss = model_type(named)
    if loss is None:
        near = get_close_matches(str(named).rpartition('.')[2], MODELS.module_dict, n=1)
        similar = f" (there is 'mmrank.{near[0]}')" if near else ''
        raise UserKeyError(
            f'{field}.type={named!r} is not registered{similar}. Fix: write it with its scope, as '
            "in 'mmrank.StableAPLoss'. A loss of your own needs @MODELS.register_module() and "
            "custom_imports = dict(imports=['my_losses']), its module on PYTHONPATH"
        )
    return loss


def build_loss(field: str, config: Mapping, num_classes: int | None = None) -> nn.Module:
    """Build a loss, the number of classes filled in; see :func:`with_num_classes`."""
    return MODELS.build(with_num_classes(field, config, num_classes))


def with_num_classes(field: str, config: Mapping, num_classes: int | None) -> dict:
    """Copy of a config with ``num_classes`` of the head, if mmrank's loss takes it.

    Values of the config take precedence. Raises KeyError as :func:`_loss_type` does.
    """
    loss = _loss_type(field, config)
    ours = loss if isinstance(loss, type) and issubclass(loss, (HeadLoss, PointwiseLoss)) else None
    if num_classes is None or ours is None or 'num_classes' not in settings_of(ours):
        return dict(config)
    return {'num_classes': num_classes, **config}


def box_loss(field: str, config: Mapping, num_classes: int | None) -> dict:
    """As :func:`with_num_classes` for a head of boxes, whose scores are sigmoids.

    A UserTypeError for a loss of mmrank without them, such as one of embeddings.
    """
    loss = _loss_type(field, config)
    ours = loss if isinstance(loss, type) and issubclass(loss, NamedSettings) else None
    if ours is not None and 'use_sigmoid' not in {*settings_of(ours), *ours.hidden_settings}:
        what = f'{field}.type={config["type"]!r} does not take the sigmoid scores of a box head'
        fix = f"a loss that ranks them, such as {field}=dict(type='mmrank.GradedAPLoss')"
        raise UserTypeError(what, fix)
    return {'use_sigmoid': True, **with_num_classes(field, config, num_classes)}
