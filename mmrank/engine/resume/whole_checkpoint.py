"""Checkpoints of several processes that are either whole or absent.

Files go to a temporary folder, a manifest with their sizes and checksums comes last, and only then
the folder takes its name. ``torch.distributed.checkpoint`` has no checksums, and its folder may
lack any file.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mmengine.dist import (
    all_gather_object,
    barrier,
    broadcast_object_list,
    get_rank,
    get_world_size,
    is_main_process,
)

from mmrank.files import left_behind, remove_path, sync_folder, temporary_name, write_atomically

MANIFEST = 'manifest.json'
#: Begins the name of a folder that is about to be removed.
REMOVED = 'removed-'

_FORMAT = 1
#: A manifest has some 60 bytes a file.
_LARGEST_MANIFEST = 1 << 28


@contextmanager
def whole_checkpoint(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary name, the same on all processes, which becomes ``path`` in the end.

    Each writes its part of the file or folder of that name, on a disk that all share, or nothing.
    An error in the block removes what was written.
    """
    names = [str(temporary_name(path))]
    if is_main_process():
        remove_path(Path(names[0]))
    broadcast_object_list(names)
    temp = Path(names[0])
    try:
        yield temp
    except BaseException:
        if is_main_process():
            remove_path(temp)
        raise
    barrier()
    if temp.is_dir():
        _write_manifest(temp)
        if is_main_process():
            _install_folder(temp, Path(path).absolute())
    elif is_main_process():
        with open(temp, 'rb') as file:
            os.fsync(file.fileno())
        os.replace(temp, path)
        sync_folder(temp.parent)
    barrier()


def all_succeed(write: Callable[[], None]) -> None:
    """Write in all processes; an OSError in one is raised in all, so that none waits for ever."""
    error = None
    try:
        write()
    except OSError as found:
        error = found
    messages = all_gather_object(None if error is None else str(error))
    if error is not None:
        raise error
    for rank, message in enumerate(messages):
        if message is not None:
            raise OSError(f'process {rank} could not write its shard of the state: {message}')


def remove_checkpoint(path: str | os.PathLike) -> None:
    """Remove a file, or a folder so that it is whole or absent at any moment; if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        remove_path(_set_aside(Path(path).absolute()))
    else:
        with suppress(FileNotFoundError):
            os.remove(path)


def find_folder_damage(folder: str | os.PathLike) -> str | None:
    """Say what is wrong with a folder, reading each file of its manifest once; None if whole."""
    manifest = Path(folder, MANIFEST)
    if not manifest.is_file():
        return f'is a folder without {MANIFEST}: it is not complete, or nothing of mmrank wrote it'
    try:
        if manifest.stat().st_size > _LARGEST_MANIFEST:
            return f'has a {MANIFEST} that is too large'
        files = _listed_files(json.loads(manifest.read_bytes()))
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


def recover_folders(folder: str | os.PathLike) -> list[str]:
    """Give folders their names that a killed process was about to name; return the names."""
    found = []
    for temp, name in left_behind(folder):
        path = temp.with_name(name)
        is_free = not name.startswith(REMOVED) and not os.path.lexists(path)
        if temp.is_dir() and is_free and find_folder_damage(temp) is None:
            temp.rename(path)
            found.append(name)
    return found


def _write_manifest(folder: Path) -> None:
    """Declare a folder whole; the processes share the reading of its files."""
    listed = [sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file())]
    broadcast_object_list(listed)
    measured = {}
    for name in listed[0][get_rank() :: get_world_size()]:
        with open(folder / name, 'rb') as file:
            os.fsync(file.fileno())
            measured[name] = _size_and_checksum(file)
    parts = all_gather_object(measured)
    if is_main_process():
        files = {name: entry for part in parts for name, entry in part.items()}
        for parent, _, _ in os.walk(folder):
            sync_folder(parent)
        text = json.dumps({'format': _FORMAT, 'files': files}, sort_keys=True)
        write_atomically(text.encode(), folder / MANIFEST)


def _install_folder(temp: Path, path: Path) -> None:
    """Rename a whole folder; killed on the way, :func:`recover_folders` gives it its name."""
    old = _set_aside(path) if os.path.lexists(path) else None
    temp.rename(path)
    sync_folder(path.parent)
    if old is not None:
        remove_path(old)


def _set_aside(path: Path) -> Path:
    aside = temporary_name(path, REMOVED)
    remove_path(aside)
    path.rename(aside)
    return aside


def _listed_files(content: object) -> dict[str, tuple[int, int]]:
    """Files of a manifest; a ValueError if it is none or was tampered with."""
    files = content.get('files') if isinstance(content, dict) else None
    if not isinstance(files, dict) or content.get('format') != _FORMAT:
        raise ValueError(f'no list of files of format {_FORMAT}')
    for name, entry in files.items():
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or '..' in parts:
            raise ValueError(f'{name!r} is not a file of the folder')
        if not isinstance(entry, list) or [type(number) for number in entry] != [int, int]:
            raise ValueError(f'{name!r} has no size and checksum')
    return files


def _size_and_checksum(file) -> list[int]:
    """Bytes, and CRC-32."""
    size = checksum = 0
    while block := file.read(1 << 20):
        size += len(block)
        checksum = zlib.crc32(block, checksum)
    return [size, checksum]
