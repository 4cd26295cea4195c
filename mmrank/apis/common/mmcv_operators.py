"""Which operators ``mmcv.ops`` calls: compiled ones, or mmrank's."""

import importlib
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType


def compiled_extension() -> ModuleType | None:
    """Return mmcv's compiled module, or None where there is none that loads."""
    found = importlib.import_module('mmcv._ext')
    is_compiled = str(found.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    return found if is_compiled else None
