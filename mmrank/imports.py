"""Names that are imported when they are first used, and libraries that need not be there."""

import ast
import difflib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from mmrank.errors import UserImportError

#: Names of other libraries, and what is here in their place.
_PEERS = {
    'TripletLoss': "mmrank.PMLLoss('TripletMarginLoss')",
    'MultipleNegativesRankingLoss': 'mmrank.adapters, or mmrank.InBatchLoss of two towers',
    'NCELoss': 'mmrank.InfoNCELoss',
    'pAUCLoss': 'mmrank.PartialAUCLoss',
}


def missing_name(package: str, name: str, names: Sequence[str]) -> Exception:
    """What to raise for a name that a package does not have; where it is, or a near one, is named.

    With advice an ImportError: ``from package import name`` hides that of an AttributeError.
    """
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    stubs = sorted(Path(__file__).parent.glob('*/__init__.pyi'))
    homes = [stub.parent.name for stub in stubs if name in _places(stub)]
    if homes:
        fix = f'from mmrank.{homes[0]} import {name}'
    elif name in _PEERS:
        fix = _PEERS[name]
    elif name.endswith('Loss') and _is_of_pml(name):
        fix = f"mmrank.PMLLoss('{name}')"
    elif near:
        fix = f'did you mean {near[0]!r}?'
    else:
        return AttributeError(f'module {package!r} has no attribute {name!r}')
    return UserImportError(f'{package} has no {name!r}', fix=fix)


def _is_of_pml(name: str) -> bool:
    has_pml = find_spec('pytorch_metric_learning') is not None
    return has_pml and hasattr(import_module('pytorch_metric_learning.losses'), name)


def _places(stub: Path) -> dict[str, str]:
    """Names of a stub, and the modules that they are in."""
    places = {}
    for node in ast.parse(stub.read_text('utf-8')).body:
        if isinstance(node, ast.ImportFrom):
            place = '.' * node.level + (node.module or '')
            places.update({alias.name: place for alias in node.names})
    return places


def lazy_package(package: str) -> tuple[list[str], Callable, Callable]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, by its stub ``__init__.pyi``."""
    module = sys.modules[package]
    places = _places(Path(str(module.__file__)).with_suffix('.pyi'))

    def get(name: str) -> object:
        if name not in places:
            raise missing_name(package, name, [*places])
        value = getattr(import_module(places[name], package), name)
        setattr(module, name, value)
        return value

    return sorted(places), get, lambda: sorted(places)


@contextmanager
def required_package(package: str, user: str, install: str) -> Iterator[None]:
    """Put around the imports of a library, which ``user`` requires and a command installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != package:
            raise
        what = f'{user} requires {package}, which is not installed'
        raise UserImportError(what, install) from error


def optional_class(package: str, type_name: str, path: str) -> type:
    """Import the class of a full name, in configs ``type_name``, or raise an ImportError."""
    module, _, name = path.rpartition('.')
    install = f'`mim install {package}`, or see the README for the reference stack.'
    with required_package(package, f"type='mmrank.{type_name}'", install):
        return getattr(import_module(module), name)


def register_optional(registry, package: str, paths: dict[str, str]) -> None:
    """Register, by type, a builder that imports its class when called: users may lack mmdet."""
    for type_name, path in paths.items():

        def build(*args, _name: tuple = (package, type_name, path), **kwargs) -> object:
            return optional_class(*_name)(*args, **kwargs)

        build.__doc__ = f'Build a ``{path}``; arguments as for the class.'
        registry.register_module(name=type_name, module=build)
