"""Run ``mmcv.ops`` on the compiled operators or on those of mmrank."""

import importlib
import sys
from contextlib import ExitStack, contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from unittest.mock import patch


def compiled_extension():
    """Return mmcv's compiled module, or None."""
    found = importlib.import_module('mmcv._ext')
    compiled = found.__file__.endswith(tuple(EXTENSION_SUFFIXES))
    return found if compiled else None


@contextmanager
def operators_of(extension):
    """Let all of ``mmcv.ops`` call the operators of one module."""
    importlib.import_module('mmcv.ops')
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
                stack.enter_context(patch.object(module, 'ext_module', extension))
        yield
