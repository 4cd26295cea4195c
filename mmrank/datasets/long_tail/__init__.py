"""Long-tailed data sets: exponential subsets, binary splits, multi-label.

Importing this package registers the data sets without importing mmpretrain.
"""

from mmrank.optional_class import register_optional
from mmrank.registry import DATASETS

_PACKAGE = 'mmrank.datasets.long_tail'

register_optional(
    DATASETS,
    'mmpretrain',
    {
        'CIFAR10LT': f'{_PACKAGE}.cifar.CIFAR10LT',
        'CIFAR100LT': f'{_PACKAGE}.cifar.CIFAR100LT',
        'CIFAR10BinaryLT': f'{_PACKAGE}.cifar.CIFAR10BinaryLT',
        'CIFAR100BinaryLT': f'{_PACKAGE}.cifar.CIFAR100BinaryLT',
        'ChestXray14': f'{_PACKAGE}.chest_xray14.ChestXray14',
        'MultiLabelCSV': f'{_PACKAGE}.multi_label_csv.MultiLabelCSV',
    },
)
