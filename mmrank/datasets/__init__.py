"""Data sets and checks of annotation files.

Importing this package registers the data sets without importing mmdet or
mmpretrain.
"""

import mmrank.datasets.captions
import mmrank.datasets.long_tail
import mmrank.datasets.retrieval.builders  # noqa: F401  they register
from mmrank.datasets.indexed_concat_dataset import IndexedConcatDataset
from mmrank.datasets.interactions import (
    InteractionDataset,
    TopKDataset,
    pair_collate,
)
from mmrank.optional_class import register_optional
from mmrank.registry import DATASETS

register_optional(
    DATASETS,
    'mmdet',
    {
        'CheckedCocoDataset': (
            'mmrank.datasets.checked_coco_dataset.CheckedCocoDataset'
        )
    },
)

__all__ = [
    'IndexedConcatDataset',
    'InteractionDataset',
    'TopKDataset',
    'pair_collate',
]
