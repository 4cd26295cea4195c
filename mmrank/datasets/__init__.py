"""Data sets and checks of annotation files.

Importing this package imports nothing else, so that a check of a file needs no torch, which is half
of its memory; :mod:`mmrank.datasets.registered` registers the data sets, and the registry imports
it.
"""

from mmrank.imports import lazy_package

__all__, __getattr__, __dir__ = lazy_package(__name__)
