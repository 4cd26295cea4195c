"""Files and folders that are whole or absent, and names that stay in their folder."""

import csv
import io
import os
import posixpath
import re
import shutil
import socket
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mmrank.errors import UserError

_SUFFIX = '.tmp'
#: Names of :func:`_temporary_name`.
_TEMP_NAME = re.compile(r'\.(?P<name>.+)\.(?P<pid>\d{1,10})@(?P<host>[\w-]+)\.tmp')
#: Bytes that common file systems allow in one part of a path, and in all.
_PART_BYTES = 255
_PATH_BYTES = 4095
#: Folders of macOS, of Synology and of Windows.
_SYSTEM_FOLDERS = ('__MACOSX', '@eaDir', '$RECYCLE.BIN')


def write_atomically(data: bytes, path: str | os.PathLike) -> None:
    """Write a file, and missing folders, so that it never has partial content.

    An OSError, such as on a full disk, leaves an older ``path`` untouched and no temporary file.
    """
    with replace_atomically(path) as temp:
        temp.write_bytes(data)


@contextmanager
def replace_atomically(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary name in the same folder; what is written there becomes ``path``.

    See :func:`write_atomically` and :func:`refuse_link` for the errors.
    """
    refuse_link(path, is_replaced=True)
    path = Path(path).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = _temporary_name(path)
    try:
        yield temp
        with open(temp, 'rb+') as file:
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException as error:
        temp.unlink(missing_ok=True)
        _name_file(error, path)
        raise
    if os.name == 'posix':  # elsewhere a folder cannot be opened
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # the new name is on the disk
        finally:
            os.close(descriptor)


def _name_file(error: BaseException, path: Path) -> None:
    """Add the path to the error of a full disk, which does not name it."""
    if isinstance(error, OSError) and error.errno and not error.filename:
        error.filename = str(path)


def write_csv_atomically(rows: Iterable[Sequence], path: str | os.PathLike) -> Path:
    """Write rows, the column names first, as a CSV file in UTF-8, whole or not at all."""
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows(rows)
    write_atomically(text.getvalue().encode(), path)
    return Path(path)


@contextmanager
def temporary_folder(beside: str | os.PathLike) -> Iterator[Path]:
    """Yield an empty folder next to another path, which need not exist; remove it in the end.

    Its name begins with a dot. What killed processes left behind is removed first.
    """
    target = Path(beside).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_temporary_files(target.parent, target.name)
    temp = _temporary_name(target)
    temp.mkdir()
    try:
        yield temp
    except OSError as error:
        _name_file(error, target)
        raise
    finally:
        remove_path(temp)


@contextmanager
def whole_folder(path: str | os.PathLike, *sources: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends without an error.

    A folder that is there keeps its other files; see :func:`check_output` for the ``sources``.
    """
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UserError(f'{path} is not a folder', 'remove it, or name another folder')
    target = Path(path).resolve()
    _refuse_source(target, sources)
    with temporary_folder(target) as temp:
        yield temp
        if target.exists():
            for new in temp.rglob('*'):
                if not new.is_dir():
                    check_output(target / new.relative_to(temp), *sources)
            _move_into(temp, target)
        else:
            temp.rename(target)


def _temporary_name(path: str | os.PathLike) -> Path:
    """Hidden name next to ``path`` for what is to become ``path``."""
    path = Path(path).absolute()
    return path.with_name(f'.{path.name}.{os.getpid()}@{_host()}{_SUFFIX}')


def remove_temporary_files(folder: str | os.PathLike, name: str = '') -> None:
    """Remove what dead processes of this host left, of one ``name`` or of all."""
    for temp in Path(folder).glob(f'.*{_SUFFIX}'):
        match = _TEMP_NAME.fullmatch(temp.name)
        if match is None or match['host'] != _host() or name not in ('', match['name']):
            continue
        if _is_dead(int(match['pid'])):
            remove_path(temp)


def refuse_link(path: str | os.PathLike, is_replaced: bool = False) -> None:
    """Raise a UserError for an output that is a link, a folder or a device.

    The file behind it would be emptied under another name, or the device be gone. Hard links are
    allowed where the file ``is_replaced`` whole. An OSError if the name is too long.
    """
    if '\0' in os.fspath(path):
        raise UserError(f'{os.fspath(path)!r:.300} holds a null character', 'another name')
    for place in (_temporary_name(path), Path(path)):
        with suppress(FileNotFoundError):
            found = os.lstat(place)
            if not stat.S_ISREG(found.st_mode) or (found.st_nlink > 1 and not is_replaced):
                what = f'{place} cannot be written: it is a link, a folder or a device'
                raise UserError(what, 'remove it, or name another file')


def check_output(path: str | os.PathLike, *sources: str | os.PathLike) -> None:
    """Refuse, before the work, an output that cannot be written or is one of the ``sources``."""
    _refuse_source(path, sources)
    try:
        refuse_link(path, is_replaced=True)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent), suppress(FileNotFoundError):
            os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        what = f'{path!s:.300} cannot be written: {error.strerror}'
        raise UserError(what, 'a shorter name, or a file in a folder of yours') from error


def _refuse_source(path: str | os.PathLike, sources: Iterable[str | os.PathLike]) -> None:
    for source in sources:
        if os.path.exists(source) and os.path.exists(path) and os.path.samefile(source, path):
            what = f'{path} is the source {source}, and the output would overwrite it'
            raise UserError(what, 'another name for the output')


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, if there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def read_text(path: str | os.PathLike, kind: str, fix: str) -> str:
    """Text of a file in UTF-8; a UserError names its kind, such as ``'list'``, and the fix."""
    try:
        # A byte-order mark is not part of the text.
        return Path(path).read_text(encoding='utf-8-sig')
    except (OSError, ValueError) as error:
        raise UserError(f'{kind} {path!s:.300} cannot be read: {error}', fix) from error


def path_fault(name: object) -> str | None:
    """Say why a name from an annotation file or an archive must not be joined with a folder.

    None for a good name, else the end of a sentence that begins with it.
    """
    if not isinstance(name, str):
        return f'is a {type(name).__name__}, not text'
    # Most names pass here; the rest costs several times as much.
    is_plain = 0 < len(name) <= _PART_BYTES and name.isascii() and name.isprintable()
    if is_plain and name[0] not in '/\\ ' and '..' not in name and ':' not in name:
        return None
    if not name.strip():
        return 'is empty'
    if '\0' in name:
        return 'holds a null character'
    if re.match(r'[\\/]|[A-Za-z]:', name):
        return 'is absolute'
    parts = re.split(r'[\\/]', name)
    if '..' in parts:
        return "leaves its folder by '..'"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return 'holds a character that is not valid Unicode'
    if max(sizes) > _PART_BYTES:
        return f'has a part of {max(sizes):,} bytes, more than {_PART_BYTES}'
    if sum(sizes) + len(sizes) > _PATH_BYTES:
        return f'has {sum(sizes):,} bytes, more than {_PATH_BYTES:,}'
    return None


def _move_into(source: Path, target: Path) -> None:
    for path in source.iterdir():
        there = target / path.name
        if path.is_dir() and there.is_dir():
            _move_into(path, there)
        else:
            path.replace(there)


def _is_dead(pid: int) -> bool:
    """Whether a process of this machine has ended; False where nobody can tell."""
    # A process in a container may have the number of the one that died.
    if pid == os.getpid():
        return True
    if os.name != 'posix' or pid <= 0:
        return False
    with suppress(PermissionError, OverflowError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
    return False


def _host() -> str:
    return re.sub(r'[^\w-]', '_', socket.gethostname())


def find_files(
    folder: str | os.PathLike, endings: tuple[str, ...]
) -> tuple[list[str], dict[str, list[str]]]:
    """Names of files below a folder, sorted, and by a reason the names that are passed over.

    ``endings`` are in small letters. Links to folders are followed; no folder is entered twice.
    Hidden are folders of systems, and names that begin with a dot, such as ``._`` files of macOS.
    """
    found = []
    others: dict[str, list[str]] = defaultdict(list)
    seen = {str(x) for x in Path(folder).resolve().parents}
    folders = ['']
    links: list[str] = []
    while folders or links:
        place = (folders or links).pop()
        real = os.path.realpath(os.path.join(folder, place))
        if real in seen:
            others['link to a folder that is entered already'].append(place)
            continue
        seen.add(real)
        for entry in os.scandir(real):
            inner = posixpath.join(place, entry.name)
            if entry.name.startswith('.') or entry.name in _SYSTEM_FOLDERS:
                others['hidden'].append(inner)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(inner)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                links.append(inner)
            elif not os.path.isfile(entry.path):
                others['link to nothing, or no file'].append(inner)
            elif entry.name.lower().endswith(endings):
                found.append(inner)
            else:
                others[os.path.splitext(inner)[1].lower() or 'without ending'].append(inner)
    return sorted(found), others


def safe_name(name: str) -> str:
    """Replace what a file name should not hold by ``_``."""
    return ''.join(c if c.isalnum() or c in '.+-' else '_' for c in name)
