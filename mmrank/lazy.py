"""Public names of a package that are imported when they are first used."""

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from mmrank.errors import UserImportError


def missing_name(package: str, name: str, names: Sequence[str]) -> Exception:
    """What to raise for a name that a package does not have; a near one is named.

    An AttributeError, or for a near name an ImportError: ``from package import name`` hides the
    message of the former, and no class can be both.
    """
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    if not near:
        return AttributeError(f'module {package!r} has no attribute {name!r}')
    return UserImportError(f'{package} has no {name!r}', fix=f'did you mean {near[0]!r}?')


def lazy_package(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable, Callable]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, from its names by module."""
    module = sys.modules[package]
    places = {name: place for place, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name not in places:
            raise missing_name(package, name, [*places])
        value = getattr(import_module(places[name], package), name)
        setattr(module, name, value)
        return value

    return sorted(places), get, lambda: sorted(places)
