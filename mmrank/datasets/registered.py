"""Registers the data sets; neither mmdet nor mmpretrain is imported."""

import mmrank.datasets.captions
import mmrank.datasets.indexed_concat_dataset
import mmrank.datasets.interactions
import mmrank.datasets.long_tail
import mmrank.datasets.one_size
import mmrank.datasets.retrieval
import mmrank.datasets.shards  # noqa: F401  they register
from mmrank.optional_class import register_optional
from mmrank.registry import DATASETS

register_optional(
    DATASETS,
    'mmdet',
    {
        'CheckedCocoDataset': ('mmrank.datasets.checked_coco_dataset.CheckedCocoDataset'),
        'LVISDataset': 'mmrank.datasets.checked_coco_dataset.LVISDataset',
    },
)
