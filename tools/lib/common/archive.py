"""Unpacking of zip archives that may come from a stranger.

``zipfile`` and ``pooch`` unpack what they are given: neither limits what comes out, nor unpacks
whole or not at all.
"""

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
from mmrank.files import path_fault, whole_folder

_CHUNK = 1 << 20
#: Bytes that any archive may unpack to, however small it is.
_FREE_BYTES = 10 * 10**6
#: Largest table of contents; zipfile reads it whole.
_TABLE_BYTES = 1 << 28
_FILE_TYPES = {
    stat.S_IFLNK: 'a symbolic link',
    stat.S_IFCHR: 'a device',
    stat.S_IFBLK: 'a device',
    stat.S_IFIFO: 'a named pipe',
    stat.S_IFSOCK: 'a socket',
}
#: What zipfile raises for damaged bytes: NotImplementedError is a RuntimeError, UnicodeError and
#: io.UnsupportedOperation are ValueErrors, OSError is for an impossible place.
_DAMAGE = (
    *(OSError, zipfile.BadZipFile, zlib.error, EOFError),
    *(OverflowError, RuntimeError, ValueError, struct.error),
)
_BY_HAND = 'Fix: fetch the archive again; if you trust it, unpack it yourself and pass the folder.'


class ArchiveError(UserError):
    """An archive that must not or cannot be unpacked; the text says why."""


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may need, by the bytes that come out, whatever it says of itself."""

    max_bytes: int = 32 * 10**9  # Bytes of all files together
    max_members: int = 1_000_000  # Files and folders
    # Bytes of all files over the archive's bytes; images reach 2, text 20, and a bomb 1,000
    max_ratio: float = 100.0


def extract_archive(
    source: str | os.PathLike,
    folder: str | os.PathLike,
    *,
    select: Callable[[str], bool] | None = None,
    limits: ArchiveLimits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Check all names of a zip archive, then unpack it into a folder, whole or not at all."""
    source = Path(source)
    limits = limits or ArchiveLimits()
    with _BoundedReader(io.FileIO(source)) as file, _open(source, file, limits) as archive:
        members = [
            info
            for info in _checked(source, archive)
            if not info.is_dir() and (select is None or select(info.filename))
        ]
        expected = sum(info.file_size for info in members)
        packed, done = source.stat().st_size, 0
        with whole_folder(folder) as temp:
            for info in members:
                with _new_file(source, info, temp) as output:
                    for chunk in _chunks(source, archive, info):
                        done += len(chunk)
                        _check_size(source, info, done, packed, limits)
                        output.write(chunk)
                if progress is not None:
                    progress(done, max(done, expected))
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

    # zipfile sets an empty list before it appends to it.
    filelist = property(lambda self: self._members, lambda self, empty: None)

    def __init__(self, file: io.BufferedReader, members: _Members) -> None:
        self._members = members
        super().__init__(file)


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
        elif not fault and info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # zipfile cannot bound the memory that these need.
            fault = (
                f'is compressed by method {info.compress_type}; only stored '
                'and deflated members are read'
            )
        if fault:
            raise ArchiveError(f'archive {source}: member {_shown(info)} {fault}. {_BY_HAND}')
        seen.add(info.filename)
        yield info


def _check_size(
    source: Path, info: zipfile.ZipInfo, done: int, packed: int, limits: ArchiveLimits
) -> None:
    what = f'archive {source}: with member {_shown(info)} it unpacks '
    if done > limits.max_bytes:
        raise ArchiveError(
            f'{what}to more than {limits.max_bytes:,} bytes, the limit. Fix: if you trust '
            'the archive, raise max_bytes (--max-gigabytes).'
        )
    if done > max(_FREE_BYTES, limits.max_ratio * packed):
        raise ArchiveError(
            f'{what}to more than {limits.max_ratio:g} times its own {packed:,} '
            'bytes, the limit, as a decompression bomb does. Fix: if you trust the archive, '
            'raise max_ratio (--max-ratio).'
        )


def _new_file(source: Path, info: zipfile.ZipInfo, folder: Path) -> io.BufferedWriter:
    target = folder / info.filename
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open('xb')
    except (FileExistsError, NotADirectoryError):
        raise ArchiveError(
            f'archive {source}: member {_shown(info)} is a file where another '
            f'member needs a folder. {_BY_HAND}'
        ) from None


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
