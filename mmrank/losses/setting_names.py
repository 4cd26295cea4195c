"""Names the settings that a loss does not take, and why they are there."""

import functools
import inspect
from collections.abc import Callable

from mmrank.errors import UserError


class UnknownSettingError(UserError, TypeError):
    """A config has settings that its class does not take."""


class NamedSettings:
    """Base of losses that explain a setting they do not take.

    Configs are merged with the one that they inherit from, so the settings
    of the loss that was there stay, unless ``_delete_=True`` removes them.
    """

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        if '__init__' in cls.__dict__:
            cls.__init__ = _explaining(cls.__init__)


def _explaining(init: Callable) -> Callable:
    @functools.wraps(init)
    def explain(self, *args, **kwargs) -> None:
        # A base gets what its subclass passes, which no config has written.
        if type(self).__init__ is explain:
            _refuse_unknown(type(self), kwargs)
        init(self, *args, **kwargs)

    return explain


def _refuse_unknown(cls: type, settings: dict) -> None:
    taken = settings_of(cls)
    if taken is None:
        return
    unknown = {k: v for k, v in settings.items() if k not in taken}
    if unknown:
        listed = ', '.join(f'{k}={v!r:.80}' for k, v in unknown.items())
        raise UnknownSettingError(
            f'{cls.__name__} does not take {listed}. A config that inherits '
            'from another one keeps the settings of the loss that was there. '
            f"Fix: dict(_delete_=True, type='mmrank.{cls.__name__}', ...) "
            'removes them. If you wrote them yourself, correct the name; '
            f'{cls.__name__} takes {", ".join(taken)}'
        )


def settings_of(cls: type) -> list[str] | None:
    """Names of the keyword arguments of a class.

    Args:
        cls: A class that may pass ``**kwargs`` on to its bases.

    Returns:
        The names, those of bases last; None if it takes any.
    """
    names: dict[str, None] = {}
    for owner in cls.__mro__:
        if '__init__' not in owner.__dict__:
            continue
        parameters = list(inspect.signature(owner.__dict__['__init__']).parameters.values())
        names |= {
            p.name: None
            for p in parameters[1:]
            if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        }
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return list(names)
    return None
