"""Checkpoints that are either whole or absent.

A process can die at any instruction: while a checkpoint is being written,
between the checkpoint and its pointer file, or between the removal of an
outdated checkpoint and the writing of the new one. :func:`write_atomically`
closes the first window, :func:`find_last_whole_checkpoint` finds its way
through what is left in a folder, also when a file was damaged from outside
(full disk, interrupted copy).
"""

import logging
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend
from mmengine.logging import print_log
from mmengine.runner import CheckpointLoader

from mmrank.atomic_file import write_atomically

POINTER_NAME = 'last_checkpoint'
ATOMIC_BACKEND = 'mmrank_atomic_local'

_STEP = re.compile(r'^(?P<prefix>.*?)(?P<step>\d+)\.pth$')
# `CheckpointHook(published_keys=...)` appends 8 hexadecimal digits of a hash,
# which may look like a step of its own.
_PUBLISHED = re.compile(r'-[0-9a-f]{8}\.pth$')


@register_backend(ATOMIC_BACKEND, force=True)
class AtomicLocalBackend(LocalBackend):
    """mmengine's local file backend with writes that are all or nothing."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write bytes to ``filepath``, see :func:`write_atomically`."""
        write_atomically(obj, filepath)

    def put_text(
        self, obj: str, filepath: str | Path, encoding: str = 'utf-8'
    ) -> None:
        """Write text to ``filepath``, see :func:`write_atomically`."""
        write_atomically(obj.encode(encoding), filepath)


def is_whole_checkpoint(path: str | os.PathLike) -> bool:
    """Tell whether a checkpoint file is complete and undamaged.

    A file of torch's zip format has its directory at the very end, so a
    truncated one has none; each record's CRC is compared as well, which reads
    the file once. A file of torch's older format has neither and is loaded.

    Args:
        path: A checkpoint file. A folder (DeepSpeed, FSDP) is not judged and
            gives ``False``.

    Returns:
        ``False`` for a missing, empty, truncated or damaged file.
    """
    path = Path(path)
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with open(path, 'rb') as file:
        is_zip_format = file.read(4) == b'PK\x03\x04'
    if not is_zip_format:
        return _loads(path)
    try:
        with zipfile.ZipFile(path) as archive:
            has_object = any(
                name.rpartition('/')[2] == 'data.pkl'
                for name in archive.namelist()
            )
            return has_object and archive.testzip() is None
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError):
        return False


def _loads(path: Path) -> bool:
    """Whether mmengine can load the file, the only test of the old format."""
    try:
        CheckpointLoader.load_checkpoint(str(path), map_location='cpu')
    except Exception as error:  # unpickling damaged bytes raises anything
        print_log(
            f'{path} cannot be loaded: {type(error).__name__}: {error}',
            logger='current',
        )
        return False
    return True


@dataclass(frozen=True)
class _Candidate:
    """A checkpoint file by its name: ``<prefix><step>.pth``."""

    path: Path
    prefix: str
    step: int
    mtime: float


def find_last_whole_checkpoint(work_dir: str | os.PathLike) -> str | None:
    """Find the newest checkpoint from which a training can resume.

    Newest is what has the largest epoch or iteration in its name. A file
    named later than the one in ``last_checkpoint`` counts only if it was also
    written later: it is then a checkpoint whose pointer the killed process
    did not come to write, and not one that another training left behind.
    Temporary files, ``best_*`` and published checkpoints are not considered.

    Args:
        work_dir: Folder of the training, with the pointer file
            ``last_checkpoint`` and, unless the hook's ``out_dir`` says
            otherwise, the checkpoints.

    Returns:
        Path of the newest whole checkpoint; ``None`` if there is none. Each
        damaged file that is passed over is named in a warning.
    """
    work_dir = Path(work_dir)
    target, pointer_time = _read_pointer(work_dir)
    folders = {work_dir}
    if target is not None:
        folders.add(target.parent)
    candidates = [
        candidate
        for folder in folders
        if folder.is_dir()
        for candidate in _list_candidates(folder)
    ]
    for path in _order(candidates, target, pointer_time):
        if is_whole_checkpoint(path):
            return str(path)
        _warn(
            f'Checkpoint {path} is torn or damaged and is skipped; the one '
            'before it is tried. Delete the file to silence this warning.'
        )
    return None


def _read_pointer(work_dir: Path) -> tuple[Path | None, float]:
    """Return the file ``last_checkpoint`` names, and the pointer's age."""
    pointer = work_dir / POINTER_NAME
    if not pointer.is_file():
        return None, 0.0
    text = pointer.read_bytes().decode('utf-8', errors='replace').strip()
    if not text or '\x00' in text:
        _warn(f'{pointer} is torn; the checkpoints are ordered by name.')
        return None, 0.0
    target = Path(text)
    if not target.exists() and (work_dir / target.name).exists():
        target = work_dir / target.name  # the folder was moved
    return target, pointer.stat().st_mtime


def _list_candidates(folder: Path) -> list[_Candidate]:
    found = []
    for path in folder.glob('*.pth'):
        match = _STEP.match(path.name)
        if (
            match is None
            or path.name.startswith(('.', 'best_'))
            or _PUBLISHED.search(path.name)
        ):
            continue
        mtime = path.stat().st_mtime
        found.append(
            _Candidate(path, match['prefix'], int(match['step']), mtime)
        )
    return found


def _order(
    candidates: list[_Candidate], target: Path | None, pointer_time: float
) -> list[Path]:
    """Sort candidates newest first, those of another training left out."""
    if target is None:
        # Without a pointer the kind of name written last is tried first.
        newest: dict[str, float] = {}
        for item in candidates:
            newest[item.prefix] = max(newest.get(item.prefix, 0.0), item.mtime)
        candidates.sort(key=lambda c: (newest[c.prefix], c.step))
        return [item.path for item in reversed(candidates)]

    match = _STEP.match(target.name)
    if match is None:  # a `filename_tmpl` that does not end in the step
        return [target] if target.exists() else []
    own = [item for item in candidates if item.prefix == match['prefix']]
    own = [
        item
        for item in own
        if item.step <= int(match['step']) or item.mtime >= pointer_time
    ]
    own.sort(key=lambda c: c.step)
    return [item.path for item in reversed(own)]


def _warn(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
