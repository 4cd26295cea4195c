"""One process at a time in a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mmrank.errors import UserError
from mmrank.files import refuse_link


@contextmanager
def lock_folder(folder: str | Path, name: str = '.running') -> Iterator[None]:
    """Keep other processes out of a folder by the lock file ``name`` in it.

    The kernel releases the lock when the process ends; the file stays.

    Raises:
        UserError: Another process, or this one, has the lock, or the folder cannot be written to.
    """
    path = Path(folder).absolute() / name
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_link(path)
        lock.acquire(timeout=0)
    except Timeout:
        what = f'{path.parent} is in use by another process'
        raise UserError(what, 'wait until it has ended, or choose another folder') from None
    except OSError as error:
        what = f'folder {str(path.parent)!r} cannot be written to: {error.strerror}'
        raise UserError(what, 'choose another one') from None
    try:
        yield
    finally:
        lock.release()
