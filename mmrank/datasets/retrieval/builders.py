"""Registry entries of the retrieval data sets.

A builder stands in the registry, not the class: the class derives from
mmpretrain's, and importing mmpretrain here would break users without it.
"""

from mmrank.datasets.mmpretrain_datasets import mmpretrain_dataset_class
from mmrank.registry import DATASETS

#: Module, in this package, of every data set.
RETRIEVAL_DATASETS = {
    'StanfordOnlineProducts': 'stanford_online_products',
    'VehicleID': 'vehicle_id',
    'INaturalistRetrieval': 'inaturalist_retrieval',
    'Omniglot': 'omniglot',
    'ClassFolder': 'class_folder',
}


def retrieval_dataset_class(name: str) -> type:
    """Return the class of a retrieval data set.

    Args:
        name: A key of ``RETRIEVAL_DATASETS``.

    Raises:
        ImportError: If mmpretrain is not installed.
    """
    module = f'mmrank.datasets.retrieval.{RETRIEVAL_DATASETS[name]}'
    return mmpretrain_dataset_class(module, name)


@DATASETS.register_module(name='StanfordOnlineProducts')
def build_stanford_online_products(*args, **kwargs) -> object:
    """Build a ``StanfordOnlineProducts``; arguments as for the class."""
    return retrieval_dataset_class('StanfordOnlineProducts')(*args, **kwargs)


@DATASETS.register_module(name='VehicleID')
def build_vehicle_id(*args, **kwargs) -> object:
    """Build a ``VehicleID``; arguments as for the class."""
    return retrieval_dataset_class('VehicleID')(*args, **kwargs)


@DATASETS.register_module(name='INaturalistRetrieval')
def build_inaturalist_retrieval(*args, **kwargs) -> object:
    """Build an ``INaturalistRetrieval``; arguments as for the class."""
    return retrieval_dataset_class('INaturalistRetrieval')(*args, **kwargs)


@DATASETS.register_module(name='Omniglot')
def build_omniglot(*args, **kwargs) -> object:
    """Build an ``Omniglot``; arguments as for the class."""
    return retrieval_dataset_class('Omniglot')(*args, **kwargs)


@DATASETS.register_module(name='ClassFolder')
def build_class_folder(*args, **kwargs) -> object:
    """Build a ``ClassFolder``; arguments as for the class."""
    return retrieval_dataset_class('ClassFolder')(*args, **kwargs)
