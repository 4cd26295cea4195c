"""Checkpoints that are either whole or absent.

:func:`find_last_whole_checkpoint` finds its way through what a kill at any instruction, a full disk
or an interrupted copy has left in a folder.
"""

import logging
import os
import re
import zipfile
from pathlib import Path
from typing import NamedTuple

import torch
from mmengine.fileio import LocalBackend, register_backend
from mmengine.logging import print_log

from mmrank.checkpoint_loading import IS_A_FOLDER, record_damage
from mmrank.files import write_atomically

POINTER_NAME = 'last_checkpoint'
ATOMIC_BACKEND = 'mmrank_atomic_local'

_STEP = re.compile(r'^(?P<prefix>.*?)(?P<step>[0-9]{1,18})\.pth$')
_LONGEST_PATH = 4096
# `CheckpointHook(published_keys=...)` appends 8 hexadecimal digits of a hash, which may look like a
# step of its own.
_PUBLISHED = re.compile(r'-[0-9a-f]{8}\.pth$')


@register_backend(ATOMIC_BACKEND, force=True)
class AtomicLocalBackend(LocalBackend):
    """mmengine's local file backend with writes that are all or nothing.

    mmengine removes a checkpoint before its successor is written: here that is only noted.

    Attributes:
        outdated: Files to remove when their successor is on the disk.
    """

    def __init__(self) -> None:
        self.outdated: list[str] = []

    def put(self, obj: bytes, filepath: str | Path) -> None:
        write_atomically(obj, filepath)

    def remove(self, filepath: str | Path) -> None:
        self.outdated.append(str(filepath))


def find_damage(path: str | os.PathLike) -> str | None:
    """Say what is wrong with a checkpoint, to follow its name in a message; None if it is whole.

    Nothing is unpickled. A file of torch's zip format has its directory at the very end, so a
    truncated one has none; the CRC of each record is compared. A file of torch's older format has
    neither, and does not count as whole.
    """
    if os.path.isdir(path):
        return IS_A_FOLDER
    if os.path.exists(path) and not os.path.isfile(path):
        return 'is not a file'  # to open a pipe would wait for ever
    try:
        with open(path, 'rb') as file:
            start = file.read(4)
        if not start:
            return 'is empty'
        if start != b'PK\x03\x04':
            return 'is damaged, or is of a format that cannot be judged without running it'
        return _find_zip_damage(path)
    except OSError as error:
        if os.path.islink(path) and not os.path.exists(path):
            return f'is a link to {os.readlink(path)}, which does not exist'
        return f'cannot be read: {error.strerror or error}'
    # Damaged bytes raise anything: struct, zlib, Unicode and value errors.
    except Exception as error:
        return f'is torn or damaged: {type(error).__name__}: {error}'


def _find_zip_damage(path: str | os.PathLike) -> str | None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if not any(m.filename.endswith('/data.pkl') for m in members):
            return 'is not a checkpoint: it has no data.pkl'
        if any(m.compress_type != zipfile.ZIP_STORED for m in members):
            return 'is not a checkpoint of torch: its records are compressed'
        if (damage := record_damage(archive)) is not None:
            return damage
    # torch's own reader is stricter than zipfile in some fields.
    torch._C.PyTorchFileReader(os.fspath(path)).get_all_records()
    return None


class _Candidate(NamedTuple):
    """A file by its name: ``<prefix><step>.pth``."""

    path: Path
    prefix: str
    step: int
    mtime: float


def find_last_whole_checkpoint(work_dir: str | os.PathLike) -> str | None:
    """Path of the newest checkpoint from which a training can resume; None if there is none.

    Newest is the largest epoch or iteration in the name. Beyond the one in ``last_checkpoint`` a
    file counts only if it was written later: the killed process did not come to write its pointer,
    or else another training left it behind. Files named otherwise (``iter_...`` among
    ``epoch_...``) that are older than the pointer come last. Temporary files, ``best_*`` and
    published checkpoints do not count. A warning names each file that is passed over.
    """
    work_dir = Path(work_dir)
    target, pointer_time = _read_pointer(work_dir)
    folders = {work_dir} if target is None else {work_dir, target.parent}
    candidates = [found for x in folders if os.path.isdir(x) for found in _list_candidates(x)]
    for path in _order(candidates, target, pointer_time):
        damage = find_damage(path)
        if damage is None:
            return str(path)
        _warn(f'Checkpoint {path} is passed over: it {damage}. Delete it to silence this warning.')
    return None


def _read_pointer(work_dir: Path) -> tuple[Path | None, float]:
    """Return what ``last_checkpoint`` names, and when it was written."""
    pointer = work_dir / POINTER_NAME
    if not os.path.lexists(pointer):
        return None, 0.0
    try:
        if os.path.exists(pointer) and not pointer.is_file():
            raise OSError('it is not a file')  # to open a pipe would wait for ever
        with open(pointer, 'rb') as file:
            text = file.read(_LONGEST_PATH + 1).decode('utf-8').strip()
        if not text or len(text) > _LONGEST_PATH or not text.isprintable():
            raise OSError('it is torn, or is not a path')
        written = os.stat(pointer).st_mtime
    except (OSError, UnicodeDecodeError) as error:
        _warn(f'{pointer} cannot be read ({error}); the checkpoints are ordered by name.')
        return None, 0.0
    target = Path(text)
    if not os.path.exists(target) and os.path.exists(work_dir / target.name):
        target = work_dir / target.name  # the folder was moved
    return target, written


def _list_candidates(folder: Path) -> list[_Candidate]:
    found = []
    for path in folder.glob('*.pth'):
        match = _STEP.match(path.name)
        is_other = path.name.startswith(('.', 'best_')) or _PUBLISHED.search(path.name)
        if match and not is_other:
            mtime = os.lstat(path).st_mtime  # of a dangling link as well
            found.append(_Candidate(path, match['prefix'], int(match['step']), mtime))
    return found


def _order(candidates: list[_Candidate], target: Path | None, pointer_time: float) -> list[Path]:
    """Sort candidates newest first, without another training's."""
    match = None if target is None else _STEP.match(target.name)
    if match is None:
        # Without a step the kind of name written last is tried first.
        newest = {}
        for item in candidates:
            newest[item.prefix] = max(item.mtime, newest.get(item.prefix, 0.0))
        ordered = sorted(candidates, key=lambda c: (newest[c.prefix], c.step), reverse=True)
        paths = [item.path for item in ordered]
        # A `filename_tmpl` that does not end in the step.
        return paths if target is None else [target, *paths]
    own = []
    others = []
    for item in candidates:
        is_older = item.mtime <= pointer_time
        if item.prefix != match['prefix']:
            if is_older:
                others.append(item)
        elif item.step > int(match['step']) and item.mtime < pointer_time:
            _warn(
                f'Checkpoint {item.path} is passed over: it is older than {POINTER_NAME}, so '
                'another training wrote it. Delete it to silence this warning.'
            )
        else:
            own.append(item)
    own.sort(key=lambda c: (c.step, c.path == target), reverse=True)
    others.sort(key=lambda c: (c.mtime, c.step), reverse=True)
    return [item.path for item in (*own, *others)]


def _warn(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
