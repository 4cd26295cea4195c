"""Import of a library that an extra of mmrank brings."""

import re
from importlib import import_module, metadata
from types import ModuleType

from mmrank.errors import UserError


class PackageError(UserError, ImportError):
    """A library is not installed, or not in a version that works."""


def optional_package(
    name: str,
    user: str,
    install: str,
    at_least: str = '',
    below: str = '',
    distribution: str = '',
) -> ModuleType:
    """Import a library, or say which command installs it.

    Args:
        name: By which it is imported.
        user: What requires it.
        install: The command.
        at_least: Oldest version that works.
        below: Oldest version that does not work any more.
        distribution: Name of the package that is installed; empty: ``name``.

    Returns:
        The module.

    Raises:
        PackageError: If it is absent or of a wrong version.
    """
    head = name.partition('.')[0]
    try:
        version = metadata.version(distribution or head)
        module = import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] not in (
            head,
            distribution,  # of PackageNotFoundError
        ):
            raise
        raise PackageError(
            f'{user} requires {head}, which is not installed. Fix: {install}'
        ) from error
    if (at_least and _numbers(version) < _numbers(at_least)) or (
        below and _numbers(version) >= _numbers(below)
    ):
        wanted = ' and '.join(
            f'{word} {limit}'
            for word, limit in (('from', at_least), ('below', below))
            if limit
        )
        raise PackageError(
            f'{user} requires {head} {wanted}, but {version} is installed. '
            f'Fix: {install}'
        )
    return module


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r'\d+(\.\d+)*', version)
    return tuple(map(int, found[0].split('.'))) if found else ()
