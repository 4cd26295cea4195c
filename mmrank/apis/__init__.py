"""Building blocks of the command-line tools, and released models by name."""

from mmrank.imports import lazy_package

#: Public names by the module that holds them; ``__init__.pyi`` tells type checkers the same.
_NAMES = {'.models': ('load_model', 'released_models')}

__all__, __getattr__, __dir__ = lazy_package(__name__, _NAMES)
