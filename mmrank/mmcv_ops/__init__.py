"""mmcv's operators on torch and torchvision, for an mmcv that was not compiled.

``mmcv.ops`` asks for one compiled module, ``mmcv._ext``. Importing this package makes Python find
:mod:`mmrank.mmcv_ops.extension` under that name where there is no compiled one, or one that does
not load. ``mmrank.registry`` imports it, and so does every config that names mmrank. Nothing else
of mmcv is changed, and nothing is imported before mmcv asks for it.

``python -m mmrank.mmcv_ops`` puts a file into mmcv, so that no import of mmrank is needed.
"""

import ctypes
import importlib
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from mmrank.errors import UserNotImplementedError

NAME = 'mmcv._ext'
_EXTENSION = Path(__file__).with_name('extension.py')


class _Finder(MetaPathFinder):
    """Finds ``mmcv._ext``: the compiled one, else mmrank's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        origin = found.origin or '' if found else ''
        error = ''
        if origin.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
            import torch  # noqa: F401  # the compiled module links to its libraries

            try:
                ctypes.CDLL(origin)
            except OSError as fault:
                error = str(fault)
        if found and not error:
            return found
        if error:
            warnings.warn(
                f'The compiled operators of mmcv do not load: {error}. Those of mmrank, on torch '
                'and torchvision, take their place. Fix: build mmcv for this torch with `pip '
                'install --no-cache-dir`, or install mmcv-lite.',
                stacklevel=2,
            )
        return importlib.util.spec_from_file_location(fullname, _EXTENSION)


if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())


def compiled_extension() -> ModuleType | None:
    """Return mmcv's compiled module, or None where there is none that loads."""
    found = importlib.import_module(NAME)
    is_compiled = str(found.__file__).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    return found if is_compiled else None


def refuse_operator(name: str, *_: object, **__: object) -> NoReturn:
    """Raise NotImplementedError that names an operator, called with anything, not in mmrank."""
    raise UserNotImplementedError(
        f"mmcv's operator {name!r} needs compiled code, and mmrank has none in its place. Fix: "
        'compile mmcv (tools/bootstrap.py --compile-mmcv, or `pip install --no-build-isolation '
        '--no-cache-dir mmcv` next to torch), or choose a config without this operator.'
    )
