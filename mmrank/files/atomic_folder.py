"""Folders that are either whole or absent."""

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SUFFIX = '.tmp'


@contextmanager
def temporary_folder(beside: str | os.PathLike) -> Iterator[Path]:
    """Give a folder beside another one, and remove it in the end.

    It lies on the same file system, so that a large result can be renamed instead of copied. Its
    name begins with a dot, which data sets pass over. What a killed process of this machine left
    behind is removed first.

    Args:
        beside: The other folder or file. It need not exist.

    Yields:
        The empty folder.

    Raises:
        OSError: If it cannot be made.
    """
    target = Path(beside).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear_up(target)
    number = 0
    while True:
        owner = f'{socket.gethostname()}.{os.getpid()}.{number}'
        temp = target.with_name(f'.{target.name}.{owner}{_SUFFIX}')
        try:
            temp.mkdir()
            break
        except FileExistsError:
            number += 1
    try:
        yield temp
    finally:
        shutil.rmtree(temp, ignore_errors=True)


@contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Fill a folder so that it never has partial content.

    The files go to a temporary folder beside it, which takes the final name when the block ends
    without an error. Where there is a folder already, it keeps its other files, and the new ones
    are moved in then, one by one.

    Args:
        path: Final name of the folder.

    Yields:
        The temporary folder.

    Raises:
        OSError: If a folder or file cannot be made or moved.
    """
    target = Path(path).resolve()
    with temporary_folder(target) as temp:
        yield temp
        if target.exists():
            _move_into(temp, target)
        else:
            temp.rename(target)


def _move_into(source: Path, target: Path) -> None:
    for path in source.iterdir():
        there = target / path.name
        if path.is_dir() and there.is_dir():
            _move_into(path, there)
        else:
            path.replace(there)


def _clear_up(target: Path) -> None:
    """Remove what killed processes of this machine left behind."""
    # Process ids of two machines that share a disk can agree.
    host = re.escape(socket.gethostname())
    name = re.compile(rf'\.{re.escape(target.name)}\.{host}\.(\d+)\.\d+{re.escape(_SUFFIX)}')
    for path in target.parent.glob(f'.*{_SUFFIX}'):
        found = name.fullmatch(path.name)
        if found and not _is_alive(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != 'posix':  # elsewhere signal 0 ends the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
