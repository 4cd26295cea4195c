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
        cls.__signature__ = signature_of(cls)
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
    return list(signature_of(cls).parameters)


def signature_of(cls: type) -> inspect.Signature:
    """Arguments of a class, those that ``**kwargs`` passes to its bases spelt out.

    What a class decides for a base is named in a ``FIXED`` of it.
    """
    found: dict[str, inspect.Parameter] = {}
    fixed: set[str] = set()
    found_own = False
    for owner in cls.__mro__:
        if '__init__' in owner.__dict__:
            _, *parameters = inspect.signature(owner.__dict__['__init__']).parameters.values()
            named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
            for p in named:
                if p.name not in fixed and p.name not in found:
                    found[p.name] = p.replace(kind=p.KEYWORD_ONLY) if found_own else p
            found_own = True
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
        fixed.update(owner.__dict__.get('FIXED', ()))
    return inspect.Signature(sorted(found.values(), key=lambda p: p.kind))
