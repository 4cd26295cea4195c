"""Public names of a package that are imported when they are first used."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def public_names(stub: str | Path) -> dict[str, str]:
    """Names by the module, as it is written, that a file of ``from module import a as a`` names."""
    tree = ast.parse(Path(stub).read_text('utf-8'))
    found = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {x.name: '.' * node.level + (node.module or '') for node in found for x in node.names}


def lazy_package(package: str) -> tuple[list[str], Callable, Callable]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, from the stub that it ships.

    Type checkers and editors read the same file, so there is one list of the names.
    """
    module = sys.modules[package]
    places = public_names(Path(str(module.__file__)).with_suffix('.pyi'))

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        value = getattr(import_module(places[name], package), name)
        setattr(module, name, value)
        return value

    return sorted(places), get, lambda: sorted(places)
