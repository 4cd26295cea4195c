"""Version of mmrank."""

__version__ = '0.1.0'
