"""Folders whose manifest tells whether they are whole.

A folder cannot be written in one step. Its files go to a temporary folder, a manifest with the size
and the checksum of each comes last, and only then
the folder takes its name. A process can die between any two of these steps, and files can be
damaged later: :func:`find_folder_damage` sees both.
"""

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from mmrank.files.atomic_file import (
    left_behind,
    remove_path,
    sync_folder,
    temporary_name,
    write_atomically,
)

MANIFEST = 'manifest.json'
#: Begins the name of a folder that is about to be removed.
REMOVED = 'removed-'

_FORMAT = 1
_BLOCK = 1 << 20
#: A manifest has some 60 bytes a file.
_LARGEST = 1 << 28


def measure(folder: str | os.PathLike, names: Iterable[str]) -> dict:
    """Write files to the disk for good and measure them.

    Args:
        folder: A folder.
        names: Files in it, relative to it.

    Returns:
        Size in bytes and CRC-32 by name, a part of the manifest.
    """
    found = {}
    for name in names:
        with open(Path(folder, name), 'rb') as file:
            os.fsync(file.fileno())
            found[name] = _size_and_checksum(file)
    return found


def write_manifest(folder: str | os.PathLike, files: dict) -> None:
    """Declare a folder whole.

    Args:
        folder: The folder, with all of its files.
        files: What :func:`measure` has found, of all files.
    """
    text = json.dumps({'format': _FORMAT, 'files': files}, sort_keys=True)
    for parent, _, _ in os.walk(folder):
        sync_folder(parent)
    write_atomically(text.encode(), Path(folder, MANIFEST))


def find_folder_damage(folder: str | os.PathLike) -> str | None:
    """Say what is wrong with a folder, reading each file once.

    Args:
        folder: A folder. Files that its manifest does not name do not count.

    Returns:
        What is wrong, to follow the folder's name in a message; None if the folder is whole.
    """
    manifest = Path(folder, MANIFEST)
    if not manifest.is_file():
        return f'is a folder without {MANIFEST}: it is not complete, or nothing of mmrank wrote it'
    try:
        if manifest.stat().st_size > _LARGEST:
            return f'has a {MANIFEST} that is too large'
        content = json.loads(manifest.read_bytes())
        files = _listed_files(content)
    except (OSError, ValueError, RecursionError) as error:
        return f'has a damaged {MANIFEST}: {error}'
    for name, (size, checksum) in files.items():
        path = Path(folder, name)
        if path.is_symlink() or not path.is_file():
            return f'lacks its file {name}'
        if path.stat().st_size != size:
            return f'is damaged: {name} has another size'
        with open(path, 'rb') as file:
            if _size_and_checksum(file)[1] != checksum:
                return f'is damaged: {name} has another checksum'
    return None


def install_folder(temp: Path, path: str | os.PathLike) -> None:
    """Give a whole folder its name, in place of what has it now.

    Killed between two steps it leaves ``temp``, which
    :func:`recover_folders` gives the name.

    Args:
        temp: A folder of :func:`temporary_name`, with a manifest.
        path: Final name.
    """
    path = Path(path).absolute()
    old = None
    if os.path.lexists(path):
        old = _set_aside(path)
    temp.rename(path)
    sync_folder(path.parent)
    if old is not None:
        remove_path(old)


def remove_folder(path: str | os.PathLike) -> None:
    """Remove a folder so that it is whole or absent at any moment."""
    remove_path(_set_aside(Path(path).absolute()))


def recover_folders(folder: str | os.PathLike) -> list[str]:
    """Give folders their names that a killed process was about to name.

    Args:
        folder: Where they lie.

    Returns:
        Their names.
    """
    found = []
    for temp, name in left_behind(folder):
        path = temp.with_name(name)
        if (
            temp.is_dir()
            and not name.startswith(REMOVED)
            and not os.path.lexists(path)
            and find_folder_damage(temp) is None
        ):
            temp.rename(path)
            found.append(name)
    return found


def _listed_files(content) -> dict[str, tuple[int, int]]:
    """Files of a manifest, which may have been tampered with.

    Raises:
        ValueError: It is no manifest, or leaves its folder.
    """
    files = content.get('files') if isinstance(content, dict) else None
    if not isinstance(files, dict) or content.get('format') != _FORMAT:
        raise ValueError(f'no list of files of format {_FORMAT}')
    for name, entry in files.items():
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or '..' in parts:
            raise ValueError(f'{name!r} is no file of the folder')
        if not (
            isinstance(entry, list)
            and len(entry) == 2
            and all(type(number) is int for number in entry)
        ):
            raise ValueError(f'{name!r} has no size and checksum')
    return files


def _size_and_checksum(file) -> list[int]:
    size = checksum = 0
    while block := file.read(_BLOCK):
        size += len(block)
        checksum = zlib.crc32(block, checksum)
    return [size, checksum]


def _set_aside(path: Path) -> Path:
    aside = temporary_name(path, REMOVED)
    remove_path(aside)
    path.rename(aside)
    return aside
