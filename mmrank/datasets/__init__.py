"""Data sets and checks of annotation files.

Importing this package imports nothing else, so that a check of a file needs no torch, which is half
of its memory; :mod:`mmrank.datasets.registered` registers the data sets, and the registry imports
it.
"""

from importlib import import_module

_HOMES = {
    'IndexedConcatDataset': 'mmrank.datasets.one_size',
    'InteractionDataset': 'mmrank.datasets.interactions',
    'TopKDataset': 'mmrank.datasets.interactions',
    'one_size_collate': 'mmrank.datasets.one_size',
    'pair_collate': 'mmrank.datasets.interactions',
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import a data set when it is first used."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
