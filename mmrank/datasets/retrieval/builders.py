"""Registry entries of the retrieval data sets."""

from mmrank.optional_class import optional_class, register_optional
from mmrank.registry import DATASETS

_PACKAGE = 'mmrank.datasets.retrieval'

#: Full name of every data set.
RETRIEVAL_DATASETS = {
    'StanfordOnlineProducts': (f'{_PACKAGE}.stanford_online_products.StanfordOnlineProducts'),
    'VehicleID': f'{_PACKAGE}.vehicle_id.VehicleID',
    'INaturalistRetrieval': (f'{_PACKAGE}.inaturalist_retrieval.INaturalistRetrieval'),
    'Omniglot': f'{_PACKAGE}.omniglot.Omniglot',
    'ClassFolder': f'{_PACKAGE}.class_folder.ClassFolder',
}

register_optional(DATASETS, 'mmpretrain', RETRIEVAL_DATASETS)


def retrieval_dataset_class(name: str) -> type:
    """Return the class of a retrieval data set.

    Args:
        name: A key of ``RETRIEVAL_DATASETS``.

    Raises:
        ImportError: If mmpretrain is not installed.
    """
    return optional_class('mmpretrain', name, RETRIEVAL_DATASETS[name])
