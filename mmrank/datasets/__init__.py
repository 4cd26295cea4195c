"""Data sets and checks of annotation files.

Importing this package imports nothing else, so that a check of a file needs no torch, which is half
of its memory; :mod:`mmrank.datasets.registered` registers the data sets, and the registry imports
it.
"""

from mmrank.imports import lazy_package

#: Public names by the module that holds them; ``__init__.pyi`` tells type checkers the same.
_NAMES = {
    '.interactions': ('InteractionDataset', 'TopKDataset', 'pair_collate'),
    '.one_size': ('IndexedConcatDataset', 'one_size_collate'),
}

__all__, __getattr__, __dir__ = lazy_package(__name__, _NAMES)
