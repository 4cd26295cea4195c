"""Checkpoints of several processes that are either whole or absent."""

import os
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

from mmrank.files.atomic_file import remove_path, sync_folder, temporary_name
from mmrank.files.whole_folder import install_folder, measure, remove_folder, write_manifest


@contextmanager
def whole_checkpoint(path: str | os.PathLike) -> Iterator[Path]:
    """Give a temporary name, which becomes ``path`` in the end.

    All processes enter it. Each writes its part of the file or folder of that name, or nothing.
    When all have left the block, the content is flushed
    to the disk, a folder gets its manifest, and the first process renames
    it. An error in the block removes what was written.

    Args:
        path: Final name, on a disk that all processes share.

    Yields:
        The temporary name, the same on all processes.
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
        _declare_whole(temp)
        if is_main_process():
            install_folder(temp, path)
    elif is_main_process():
        with open(temp, 'rb') as file:
            os.fsync(file.fileno())
        os.replace(temp, path)
        sync_folder(temp.parent)
    barrier()


def all_succeed(write: Callable[[], None]) -> None:
    """Write in all processes; if it fails in one, it does in all.

    Otherwise the others would wait for one that has ended.

    Args:
        write: Writes what this process has.

    Raises:
        OSError: It failed here, or in another process.
    """
    error = None
    try:
        write()
    except OSError as found:
        error = found
    said = all_gather_object(None if error is None else str(error))
    if error is not None:
        raise error
    for rank, message in enumerate(said):
        if message is not None:
            raise OSError(f'process {rank} could not write its shard of the state: {message}')


def remove_checkpoint(path: str | os.PathLike) -> None:
    """Remove a file or a folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        remove_folder(path)
    else:
        with suppress(FileNotFoundError):
            os.remove(path)


def _declare_whole(folder: Path) -> None:
    """Write the manifest; the processes share the reading."""
    listed = [sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file())]
    broadcast_object_list(listed)
    own = measure(folder, listed[0][get_rank() :: get_world_size()])
    parts = all_gather_object(own)
    if is_main_process():
        write_manifest(folder, {k: v for part in parts for k, v in part.items()})
