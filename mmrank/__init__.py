"""mmrank: train vision models on average precision, inside OpenMMLab.

Importing this package pulls in nothing beyond the standard library: ``mmrank.functional`` needs
torch alone, and the registered parts are loaded by ``mmrank.registry`` when a config names the
scope ``mmrank``. The names of ``mmrank.losses`` are here, too: ``from mmrank import StableAPLoss``
imports torch.
"""

from importlib import import_module

from .imports import missing_name
from .version import __version__

__all__ = ['__version__']


def __getattr__(name: str) -> object:
    """A name of ``mmrank.losses``, imported when it is first asked for."""
    losses = import_module('.losses', __name__)
    if name not in losses.__all__:
        raise missing_name(__name__, name, losses.__all__)
    return getattr(losses, name)


def __dir__() -> list[str]:
    """Names of the module, and of ``mmrank.losses``."""
    return sorted({*globals(), *import_module('.losses', __name__).__all__})
