"""The message about a library that is not installed, or is too old."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: Lowest versions that mmrank works with, by the name of the import. The
#: files of ``requirements/`` ask pip for the same; a test compares them.
LEAST_VERSIONS = {'faiss': '1.8', 'ray': '2.10', 'submitit': '1.5'}


@contextmanager
def required_package(package: str, user: str, install: str) -> Iterator[None]:
    """Put around the imports of a library.

    Args:
        package: Name by which it is imported.
        user: What requires it.
        install: Command that installs it.

    Raises:
        ImportError: If the library is not installed, or is older than in
            :data:`LEAST_VERSIONS`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != package:
            raise
        raise ImportError(
            f'{user} requires {package}, which is not installed. Fix: '
            f'{install}'
        ) from error
    least = LEAST_VERSIONS.get(package)
    found = getattr(sys.modules.get(package), '__version__', None)
    if least and found and _numbers(found) < _numbers(least):
        raise ImportError(
            f'{user} requires {package} {least} or later; {found} is '
            f'installed. Fix: {install}'
        )


def _numbers(version: str) -> tuple[int, ...]:
    """``'2.10.0rc1'`` as ``(2, 10, 0)``."""
    release = re.match(r'\d+(\.\d+)*', version)
    return tuple(map(int, release.group().split('.'))) if release else ()
