"""Registry entries for classes that derive from an optional package's.

The registry holds a builder, not the class: importing mmdet or mmpretrain
with the registry would break users without them.
"""

from importlib import import_module

from mmengine.registry import Registry


def optional_class(package: str, type_name: str, path: str) -> type:
    """Import a class that needs an optional package.

    Args:
        package: ``mmdet`` or ``mmpretrain``.
        type_name: What configs call the class.
        path: Full name of its module, a dot, and its name there.

    Raises:
        ImportError: If the package is not installed.
    """
    module, _, name = path.rpartition('.')
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != package:
            raise
        raise ImportError(
            f"type='mmrank.{type_name}' requires {package}, which is not installed. Fix: `mim "
            f'install {package}`, or see the README for the reference stack.'
        ) from error


def register_optional(registry: Registry, package: str, paths: dict[str, str]) -> None:
    """Register a builder for each class, which imports it when called.

    Args:
        registry: Where to.
        package: ``mmdet`` or ``mmpretrain``.
        paths: As for :func:`optional_class`, by what configs call the class.
    """
    for type_name, path in paths.items():
        builder = _builder(package, type_name, path)
        registry.register_module(name=type_name, module=builder)


def _builder(package: str, type_name: str, path: str):
    def build(*args, **kwargs) -> object:
        return optional_class(package, type_name, path)(*args, **kwargs)

    build.__doc__ = f'Build a ``{path}``; arguments as for the class.'
    return build
