"""Which operators ``mmcv.ops`` calls: compiled ones, or mmrank's."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType
from unittest.mock import patch


def compiled_extension() -> ModuleType | None:
    """Return mmcv's compiled module, or None where there is none that loads."""
    found = importlib.import_module('mmcv._ext')
    is_compiled = str(found.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    return found if is_compiled else None


@contextmanager
def operators_of(extension: ModuleType) -> Iterator[None]:
    """Let all of ``mmcv.ops`` call the operators of one module, to compare them with others."""
    importlib.import_module('mmcv.ops')
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
                stack.enter_context(patch.object(module, 'ext_module', extension))
        yield
