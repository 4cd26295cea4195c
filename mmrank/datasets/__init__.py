"""Data sets and checks of annotation files.

Importing this package registers what needs neither mmdet nor mmpretrain.
"""

import mmrank.datasets.captions
import mmrank.datasets.long_tail  # noqa: F401  registers its data sets
from mmrank.datasets.checked_coco import build_checked_coco_dataset
from mmrank.datasets.indexed_concat_dataset import IndexedConcatDataset
from mmrank.datasets.interactions import (
    InteractionDataset,
    TopKDataset,
    pair_collate,
)
from mmrank.datasets.retrieval.builders import (
    build_class_folder,
    build_inaturalist_retrieval,
    build_omniglot,
    build_stanford_online_products,
    build_vehicle_id,
)

__all__ = [
    'IndexedConcatDataset',
    'InteractionDataset',
    'TopKDataset',
    'build_checked_coco_dataset',
    'build_class_folder',
    'build_inaturalist_retrieval',
    'build_omniglot',
    'build_stanford_online_products',
    'build_vehicle_id',
    'pair_collate',
]
