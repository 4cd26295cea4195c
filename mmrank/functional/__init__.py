"""Pure functions of losses and metrics. ``__init__.pyi`` lists them."""

from mmrank.lazy import lazy_package

__all__, __getattr__, __dir__ = lazy_package(__name__)
