"""Image retrieval data sets, registered without importing mmpretrain: every image has one class."""

from mmrank.optional_class import optional_class, register_optional
from mmrank.registry import DATASETS

#: Full name of every data set.
RETRIEVAL_DATASETS = {
    name: f'mmrank.datasets.retrieval.retrieval_sets.{name}'
    for name in (
        'StanfordOnlineProducts',
        'VehicleID',
        'INaturalistRetrieval',
        'Omniglot',
        'ClassFolder',
    )
}

register_optional(DATASETS, 'mmpretrain', RETRIEVAL_DATASETS)


def retrieval_dataset_class(name: str) -> type:
    """Return the class of a key of ``RETRIEVAL_DATASETS``.

    Raises:
        ImportError: If mmpretrain is not installed.
    """
    return optional_class('mmpretrain', name, RETRIEVAL_DATASETS[name])
