"""Registers the data sets; neither mmdet nor mmpretrain is imported."""

import mmrank.datasets.interactions.interaction_dataset
import mmrank.datasets.one_size  # noqa: F401  they register
from mmrank.imports import register_optional
from mmrank.registry import DATASETS


def _register(package: str, module: str, *names: str) -> dict[str, str]:
    found = {name: f'mmrank.datasets.{module}.{name}' for name in names}
    register_optional(DATASETS, package, found)
    return found


_register('mmdet', 'checked_coco_dataset', 'CheckedCocoDataset', 'LVISDataset')
_register(
    'mmpretrain', 'captions.caption_dataset', 'COCOCaptions', 'CaptionTable', 'KarpathyCaptions'
)
_register('mmpretrain', 'long_tail.cifar', 'CIFAR10LT', 'CIFAR100LT')
_register('mmpretrain', 'long_tail.cifar', 'CIFAR10BinaryLT', 'CIFAR100BinaryLT')
_register('mmpretrain', 'long_tail.multi_label', 'ChestXray14', 'MultiLabelCSV')
#: Full name of every retrieval data set.
RETRIEVAL_DATASETS = _register(
    'mmpretrain',
    'retrieval.retrieval_sets',
    *('StanfordOnlineProducts', 'VehicleID', 'INaturalistRetrieval', 'Omniglot', 'ClassFolder'),
)
