"""Run ``mmcv.ops`` on the compiled operators or on those of mmrank."""

import importlib
import sys
from contextlib import contextmanager
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
    modules = [x for name, x in sys.modules.items() if name.startswith('mmcv.ops.')]
    patches = [
        patch.object(x, 'ext_module', extension) for x in modules if hasattr(x, 'ext_module')
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
