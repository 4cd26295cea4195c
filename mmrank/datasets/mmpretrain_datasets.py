"""Registry entries for data set classes that import mmpretrain.

A builder stands in the registry, not the class: the class derives from
mmpretrain's, and importing mmpretrain here would break users without it.
"""

from importlib import import_module

from mmrank.registry import DATASETS


def mmpretrain_dataset_class(module: str, name: str) -> type:
    """Return a data set class, importing its module.

    Args:
        module: Full name of the module.
        name: The class in it.

    Raises:
        ImportError: If mmpretrain is not installed.
    """
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != 'mmpretrain':
            raise
        raise ImportError(
            f"type='mmrank.{name}' needs mmpretrain, which is not installed. "
            'Fix: `mim install mmpretrain`, or see the README for the '
            'reference stack.'
        ) from error


def register_mmpretrain_datasets(modules: dict[str, str]) -> None:
    """Register a builder for each class.

    Args:
        modules: Full name of the module of every class.
    """
    for name, module in modules.items():
        DATASETS.register_module(name=name, module=_builder(module, name))


def _builder(module: str, name: str):
    def build(*args, **kwargs) -> object:
        return mmpretrain_dataset_class(module, name)(*args, **kwargs)

    build.__doc__ = f'Build a ``{name}``; arguments as for the class.'
    return build
