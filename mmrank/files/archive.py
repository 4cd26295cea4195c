"""Unpacking of zip archives that may come from a stranger."""

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mmrank.errors import UserError
from mmrank.files.atomic_folder import whole_folder
from mmrank.files.relative_path import path_fault

_CHUNK = 1 << 20
#: Bytes that any archive may unpack to, however small it is.
_FREE_BYTES = 10 * 10**6
#: Largest table of contents; zipfile reads it whole.
_TABLE_BYTES = 1 << 28
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_FILE_TYPES = {
    stat.S_IFLNK: 'a symbolic link',
    stat.S_IFCHR: 'a device',
    stat.S_IFBLK: 'a device',
    stat.S_IFIFO: 'a named pipe',
    stat.S_IFSOCK: 'a socket',
}
#: What zipfile raises for damaged bytes; OSError for an impossible place.
_DAMAGE = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    UnicodeError,
    ValueError,
    struct.error,
)
_BY_HAND = 'Fix: fetch the archive again; if you trust it, unpack it yourself and pass the folder.'


class ArchiveError(UserError):
    """An archive that must not or cannot be unpacked; the text says why."""


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may need.

    The limits hold for the bytes that come out, whatever the archive says of itself.

    Attributes:
        max_bytes: Bytes of all files together.
        max_members: Files and folders.
        max_ratio: Bytes of all files over those of the archive. Images reach 2, text 20, and a bomb
            1,000.
    """

    max_bytes: int = 32 * 10**9
    max_members: int = 1_000_000
    max_ratio: float = 100.0


def extract_archive(
    source: str | os.PathLike,
    folder: str | os.PathLike,
    *,
    select: Callable[[str], bool] | None = None,
    limits: ArchiveLimits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Unpack a zip archive into a folder, whole or not at all.

    No file is written before the names of all members are checked: none may
    be absolute, lead out of the folder, hold a backslash, occur twice, or be
    a link or a device. A run that is killed leaves no folder of that name.

    Args:
        source: The archive.
        folder: Where to; see :func:`~mmrank.files.atomic_folder.whole_folder`.
        select: Takes the name of a file, says whether to unpack it. None: all.
        limits: None: the defaults of :class:`ArchiveLimits`.
        progress: Called as ``progress(done, total)`` with bytes.

    Returns:
        Number of files unpacked.

    Raises:
        ArchiveError: If the archive is damaged, has a member that is refused, or exceeds a limit.
            The message names archive, member and fix.
        OSError: If the archive cannot be opened, or the disk is full.
    """
    source, limits = Path(source), limits or ArchiveLimits()
    with _BoundedReader(io.FileIO(source)) as file, _open(source, file, limits) as archive:
        members = [
            info
            for info in _checked(source, archive)
            if not info.is_dir() and (select is None or select(info.filename))
        ]
        budget = _Budget(source, limits, sum(x.file_size for x in members))
        with whole_folder(folder) as temp:
            for info in members:
                _write(source, archive, info, temp, budget)
                if progress is not None:
                    progress(budget.used, max(budget.used, budget.expected))
    return len(members)


class _BoundedReader(io.BufferedReader):
    """Refuses to read more at once than a table of contents may have."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > _TABLE_BYTES:
            raise zipfile.BadZipFile(
                f'its table of contents has {size:,} bytes, more than {_TABLE_BYTES:,}'
            )
        return super().read(size)


class _Members(list):
    """The list of members; stops zipfile while it reads too long a table."""

    def __init__(self, source: Path, most: int) -> None:
        super().__init__()
        self.source, self.most = source, most

    def append(self, info: zipfile.ZipInfo) -> None:
        if len(self) >= self.most:
            raise ArchiveError(
                f'archive {self.source} has more than {self.most:,} members, '
                f'the limit; the next is {_shown(info)}. Fix: if you trust '
                'the archive, raise max_members (--max-members).'
            )
        super().append(info)


class _Zip(zipfile.ZipFile):
    """A zip archive with a limit on its members."""

    def __init__(self, file: io.BufferedReader, members: _Members) -> None:
        self._members = members
        super().__init__(file)

    @property
    def filelist(self) -> list[zipfile.ZipInfo]:
        """Members; zipfile sets an empty list before it appends to it."""
        return self._members

    @filelist.setter
    def filelist(self, value: list) -> None:
        self._members.clear()


class _Budget:
    """Counts the bytes that come out of an archive."""

    def __init__(self, source: Path, limits: ArchiveLimits, expected: int) -> None:
        self.source, self.limits, self.expected = source, limits, expected
        self.used = 0
        self.packed = source.stat().st_size
        self.ratio_bytes = max(_FREE_BYTES, limits.max_ratio * self.packed)

    def spend(self, count: int, info: zipfile.ZipInfo) -> None:
        self.used += count
        what = f'archive {self.source}: with member {_shown(info)} it unpacks '
        if self.used > self.limits.max_bytes:
            raise ArchiveError(
                f'{what}to more than {self.limits.max_bytes:,} bytes, the limit. Fix: if you trust '
                'the archive, raise max_bytes (--max-gigabytes).'
            )
        if self.used > self.ratio_bytes:
            raise ArchiveError(
                f'{what}to more than {self.limits.max_ratio:g} times its own {self.packed:,} '
                'bytes, the limit, as a decompression bomb does. Fix: if you trust the archive, '
                'raise max_ratio (--max-ratio).'
            )


def _open(source: Path, file: io.BufferedReader, limits: ArchiveLimits) -> _Zip:
    try:
        return _Zip(file, _Members(source, limits.max_members))
    except ArchiveError:
        raise
    except _DAMAGE as error:
        raise ArchiveError(
            f'archive {source} cannot be read as a zip archive: {error}. {_BY_HAND}'
        ) from error


def _checked(source: Path, archive: zipfile.ZipFile) -> Iterator[zipfile.ZipInfo]:
    """All members, each after a look at its name and kind."""
    seen = set()
    for info in archive.infolist():
        # zipfile cuts a name at a null character.
        fault = path_fault(info.orig_filename)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if not fault and '\\' in info.orig_filename:
            fault = 'holds a backslash'
        elif not fault and kind in _FILE_TYPES:
            fault = f'is {_FILE_TYPES[kind]}'
        elif not fault and info.filename in seen:
            fault = 'occurs twice'
        elif not fault and info.flag_bits & 1:
            fault = 'is encrypted'
        elif not fault and info.compress_type not in _METHODS:
            # zipfile cannot bound the memory that these need.
            fault = (
                f'is compressed by method {info.compress_type}; only stored '
                'and deflated members are read'
            )
        if fault:
            raise ArchiveError(f'archive {source}: member {_shown(info)} {fault}. {_BY_HAND}')
        seen.add(info.filename)
        yield info


def _write(
    source: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path, budget: _Budget
) -> None:
    target = folder / info.filename
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(exist_ok=False)
    except (FileExistsError, NotADirectoryError):
        raise ArchiveError(
            f'archive {source}: member {_shown(info)} is a file where another '
            f'member needs a folder. {_BY_HAND}'
        ) from None
    with target.open('wb') as output:
        for chunk in _chunks(source, archive, info):
            budget.spend(len(chunk), info)
            output.write(chunk)


def _chunks(source: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """The bytes of a member; only its reading is in the ``try``."""
    try:
        with archive.open(info) as member:
            while chunk := member.read(_CHUNK):
                yield chunk
    except _DAMAGE as error:
        raise ArchiveError(
            f'archive {source}: member {_shown(info)} is damaged: {error}. {_BY_HAND}'
        ) from error


def _shown(info: zipfile.ZipInfo) -> str:
    name = info.orig_filename
    return repr(name if len(name) <= 100 else f'{name[:100]}...')
