"""mmrank: train vision models on average precision, inside OpenMMLab.

Importing this package pulls in nothing beyond the standard library: ``mmrank.functional`` needs
torch alone, and the registered parts are loaded
by ``mmrank.registry`` when a config names the scope ``mmrank``. Losses are here by name,
``from mmrank import StableAPLoss``, which imports torch.
"""

from importlib import import_module
from typing import Any

from .version import __version__

__all__ = ['__version__']


def __getattr__(name: str) -> Any:
    """A loss of ``mmrank.losses``, imported when it is first asked for."""
    if not name.endswith('Loss'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module('.losses', __name__), name)
