"""The message about a library that is not installed, or in a wrong version."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mmrank.errors import UserError

#: Oldest version that mmrank works with and the oldest that does not work any more (None: unknown),
#: by the name of the import. The files of ``requirements/`` ask pip for the same; a test compares
#: them.
VERSIONS = {
    'datasets': ('4', '5'),
    'faiss': ('1.8', None),
    'submitit': ('1.5', None),
    'webdataset': ('1', '2'),
}


class PackageError(UserError, ImportError):
    """A library is not installed, or not in a version that works."""


@contextmanager
def required_package(package: str, user: str, install: str) -> Iterator[None]:
    """Put around the imports of a library.

    Args:
        package: Name by which it is imported.
        user: What requires it.
        install: Command that installs it.

    Raises:
        PackageError: If the library is not installed, or is not in a version of :data:`VERSIONS`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != package:
            raise
        raise PackageError(
            f'{user} requires {package}, which is not installed. Fix: {install}'
        ) from error
    least, above = VERSIONS.get(package, (None, None))
    found = getattr(sys.modules.get(package), '__version__', None)
    if least and found and _numbers(found) < _numbers(least):
        raise PackageError(
            f'{user} requires {package} {least} or later; {found} is installed. Fix: {install}'
        )
    if above and found and _numbers(found) >= _numbers(above):
        raise PackageError(
            f'{user} requires {package} below {above}; {found} is installed. Fix: {install}'
        )


def _numbers(version: str) -> tuple[int, ...]:
    """``'2.10.0rc1'`` as ``(2, 10, 0)``."""
    release = re.match(r'\d+(\.\d+)*', version)
    return tuple(map(int, release.group().split('.'))) if release else ()
