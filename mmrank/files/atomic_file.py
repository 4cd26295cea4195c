"""Files that are either whole or absent."""

import csv
import io
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mmrank.files.folder_lock import host_name, process_lives

TEMP_SUFFIX = '.tmp'

# Older versions wrote no host.
_TEMP_NAME = re.compile(
    r'\.(?P<name>.+)\.(?P<pid>\d{1,10})(@(?P<host>[\w-]+))?' + re.escape(TEMP_SUFFIX)
)
_DAY = 24 * 3600


def write_atomically(data: bytes, path: str | os.PathLike) -> None:
    """Write a file so that it never has partial content.

    The bytes go to a temporary name in the same folder, are flushed to the disk, and only then take
    the final name. A reader sees the old content or the new one. Folders that are missing are
    created.

    Args:
        data: Content of the file.
        path: Final name of the file.

    Raises:
        OSError: When the folder cannot be written to or the disk is full; the temporary file is
            removed and an older ``path`` left untouched.
    """
    with replace_atomically(path) as temp, open(temp, 'wb') as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replace_atomically(path: str | os.PathLike) -> Iterator[Path]:
    """Give a temporary name, and the final one to what was written there.

    For what is written by a library or is too large to be held in memory;
    else see :func:`write_atomically`.

    Args:
        path: Final name of the file; its folder is made if needed.

    Yields:
        A name in the same folder.

    Raises:
        OSError: As :func:`write_atomically`.
    """
    path = Path(path).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = temporary_name(path)
    try:
        yield temp
        os.replace(temp, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temp.unlink()
        if isinstance(error, OSError) and error.errno and not error.filename:
            error.filename = str(path)  # a full disk does not name it
        raise
    sync_folder(path.parent)


def temporary_name(path: str | os.PathLike, mark: str = '') -> Path:
    """Where this process writes what is to become ``path``.

    Args:
        path: Final name of a file or folder.
        mark: Begins the name, to tell temporary files apart.

    Returns:
        A hidden name in the same folder, with this process and its host.
    """
    path = Path(path).absolute()
    return path.with_name(f'.{mark}{path.name}.{os.getpid()}@{_host()}{TEMP_SUFFIX}')


def sync_folder(folder: str | os.PathLike) -> None:
    """Write the names in a folder to the disk."""
    if os.name != 'posix':  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_csv_atomically(rows: Iterable[Sequence], path: str | os.PathLike) -> Path:
    """Write a CSV file in UTF-8, whole or not at all.

    Args:
        rows: Values of each line, the column names first.
        path: File.

    Returns:
        ``path``.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows(rows)
    write_atomically(text.getvalue().encode(), path)
    return Path(path)


def remove_temporary_files(folder: str | os.PathLike) -> None:
    """Remove what killed processes left under :func:`temporary_name`.

    Files of processes that live stay. Whether a process of another host
    lives cannot be told: its files go when they are a day old.
    """
    for temp, _ in left_behind(folder):
        remove_path(temp)


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, if there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def left_behind(folder: str | os.PathLike) -> Iterator[tuple[Path, str]]:
    """Temporary files and folders of processes that have died.

    Args:
        folder: Where they lie.

    Yields:
        The path, and the name that it was to get, its mark included.
    """
    for temp in Path(folder).glob(f'.*{TEMP_SUFFIX}'):
        match = _TEMP_NAME.fullmatch(temp.name)
        with suppress(FileNotFoundError):
            if match is not None and _is_left_behind(temp, match):
                yield temp, match['name']


def _is_left_behind(temp: Path, match: re.Match) -> bool:
    if match['host'] not in (None, _host()):
        return time.time() - temp.stat().st_mtime > _DAY
    pid = int(match['pid'])
    # A process in a container may have the number of the one that died.
    return pid == os.getpid() or not process_lives(pid)


def _host() -> str:
    return re.sub(r'[^\w-]', '_', host_name())
