"""Positive pairs of left and right entities: users and items, texts, labels.

:class:`~mmrank.datasets.interactions.interaction_dataset.InteractionDataset` is what a config
names; the readers are behind it.
"""

from mmrank.datasets.interactions.interaction_dataset import (
    InteractionDataset,
    TopKDataset,
    pair_collate,
)
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.read_csv import read_csv
from mmrank.datasets.interactions.read_xmc import read_xmc

__all__ = [
    'InteractionDataset',
    'Interactions',
    'TopKDataset',
    'pair_collate',
    'read_csv',
    'read_xmc',
]
