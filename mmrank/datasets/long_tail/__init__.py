"""Long-tailed data sets: exponential subsets, binary splits, multi-label.

Importing this package registers the data sets without importing mmpretrain.
"""

from mmrank.datasets.mmpretrain_datasets import register_mmpretrain_datasets

_PACKAGE = 'mmrank.datasets.long_tail'

register_mmpretrain_datasets(
    {
        'CIFAR10LT': f'{_PACKAGE}.cifar_long_tail',
        'CIFAR100LT': f'{_PACKAGE}.cifar_long_tail',
        'CIFAR10BinaryLT': f'{_PACKAGE}.cifar_binary',
        'CIFAR100BinaryLT': f'{_PACKAGE}.cifar_binary',
        'ChestXray14': f'{_PACKAGE}.chest_xray14',
        'MultiLabelCSV': f'{_PACKAGE}.multi_label_csv',
    }
)
