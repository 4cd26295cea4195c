"""mmrank: train vision models on average precision, inside OpenMMLab.

Importing this package pulls in nothing beyond the standard library: ``mmrank.functional`` needs
torch alone, and the registered parts are loaded
by ``mmrank.registry`` when a config names the scope ``mmrank``.
"""

from .version import __version__

__all__ = ['__version__']
