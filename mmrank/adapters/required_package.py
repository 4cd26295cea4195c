"""The message about a library that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def required_package(package: str, user: str, install: str) -> Iterator[None]:
    """Put around the imports of a library.

    Args:
        package: Name by which it is imported.
        user: What requires it.
        install: Command that installs it.

    Raises:
        ImportError: If the library is not installed.
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
