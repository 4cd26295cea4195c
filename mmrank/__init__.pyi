from .losses import *
from .version import __version__ as __version__
