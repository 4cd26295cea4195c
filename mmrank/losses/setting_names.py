"""Explains a setting that a loss does not take."""

import functools
import inspect

from mmrank.errors import UserError


class UnknownSettingError(UserError, TypeError):
    """A config has settings that its class does not take."""


class NamedSettings:
    """Base of losses without ``**unknown`` in their ``__init__``."""

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        if '__init__' not in cls.__dict__:
            return
        init = cls.__init__

        @functools.wraps(init)
        def explain(self, *args, **kwargs) -> None:
            # A base gets what its subclass passes, which no config has written.
            if type(self).__init__ is explain:
                taken = settings_of(type(self))
                refuse_unknown(type(self), {k: v for k, v in kwargs.items() if k not in taken})
            init(self, *args, **kwargs)

        cls.__init__ = explain


def refuse_unknown(cls: type, unknown: dict) -> None:
    """Raise UnknownSettingError for the keyword arguments that no ``__init__`` of a loss took.

    Configs are merged with the one that they inherit from, so the settings of the loss that was
    there stay, unless ``_delete_=True`` removes them.
    """
    if unknown:
        listed = ', '.join(f'{k}={v!r:.80}' for k, v in unknown.items())
        raise UnknownSettingError(
            f'{cls.__name__} does not take {listed}. A config that inherits '
            'from another one keeps the settings of the loss that was there. '
            f"Fix: dict(_delete_=True, type='mmrank.{cls.__name__}', ...) "
            'removes them. If you wrote them yourself, correct the name; '
            f'{cls.__name__} takes {", ".join(settings_of(cls))}'
        )


def settings_of(cls: type) -> list[str]:
    """Keyword arguments of a class that may pass ``**kwargs`` to its bases; those of bases last."""
    names: dict[str, None] = {}
    for owner in cls.__mro__:
        if '__init__' in owner.__dict__:
            parameters = inspect.signature(owner.__dict__['__init__']).parameters.values()
            names |= {
                p.name: None
                for p in list(parameters)[1:]
                if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
            }
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return list(names)
