"""Checkpoints that are either whole or absent."""

import logging
import os
import re
from pathlib import Path

import torch
from mmengine.fileio import LocalBackend, register_backend
from mmengine.logging import print_log

from mmrank.checkpoint_loading import zip_damage
from mmrank.files import write_atomically

POINTER_NAME = 'last_checkpoint'
ATOMIC_BACKEND = 'mmrank_atomic_local'

_STEP = re.compile(r'(?P<prefix>.*?)(?P<step>[0-9]{1,18})\.pth')
_LONGEST_PATH = 4096


@register_backend(ATOMIC_BACKEND, force=True)
class _AtomicLocalBackend(LocalBackend):
    """mmengine's local file backend with writes that are all or nothing.

    mmengine removes a checkpoint before its successor is written: here that is only noted, in
    ``outdated``.
    """

    def __init__(self) -> None:
        self.outdated: list[str] = []

    def put(self, obj: bytes, filepath: str | Path) -> None:
        write_atomically(obj, filepath)

    def remove(self, filepath: str | Path) -> None:
        self.outdated.append(str(filepath))


def _find_damage(path: str | os.PathLike) -> str | None:
    """Say what is wrong with a checkpoint, to follow its name in a message; None if it is whole.

    Nothing is unpickled. A file of torch's older format has no checksums, and is not whole.
    """
    if not os.path.isfile(path):
        return 'is not a file'  # to open a pipe would wait for ever
    try:
        with open(path, 'rb') as file:
            if (damage := zip_damage(file)) is not None:
                return damage
            if file.read(2) != b'PK':
                return 'is damaged, or is of a format that cannot be judged without running it'
        # torch's own reader is stricter than zipfile in some fields.
        reader = torch._C.PyTorchFileReader(os.fspath(path))
        reader.get_all_records()
        reader.get_record('data.pkl')
    except (OSError, RuntimeError) as error:
        return f'cannot be read: {error!s:.200}'
    return None


def find_last_whole_checkpoint(work_dir: str | os.PathLike) -> str | None:
    """Path of the newest checkpoint from which a training can resume; None if there is none.

    Newest is the largest epoch or iteration in the name. Beyond the one in ``last_checkpoint`` a
    file counts only if it was written later: the killed process did not come to write its pointer,
    or else another training left it behind. Files named otherwise (``iter_...`` among
    ``epoch_...``) come last. Temporary files and ``best_*`` do not count. One warning lists the
    files that are passed over.
    """
    work_dir = Path(work_dir)
    pointer = work_dir / POINTER_NAME
    text = ''
    if pointer.is_file():
        text = pointer.read_bytes()[: _LONGEST_PATH + 1].decode('utf-8', 'replace').strip()
    target = None
    if text and len(text) <= _LONGEST_PATH and text.isprintable():  # neither torn nor anything else
        target = Path(text)
        if not os.path.exists(target) and os.path.exists(work_dir / target.name):
            target = work_dir / target.name  # the folder was moved
    folders = {work_dir} if target is None else {work_dir, target.parent}
    candidates = {
        path
        for folder in folders
        for path in folder.glob('*.pth')
        if _STEP.fullmatch(path.name) and not path.name.startswith(('.', 'best_'))
    }
    if target is not None:
        candidates.add(target)
    ranked = []
    if candidates:
        own_prefix, last_step = _prefix_and_step(target or max(candidates, key=_modified))
    for path in candidates:
        prefix, step = _prefix_and_step(path)
        if prefix != own_prefix:
            ranked.append((False, _modified(path), step, path))
        # Not the larger steps of another training.
        elif target is None or step <= last_step or _modified(path) >= _modified(pointer):
            ranked.append((True, step, path == target, path))
    passed_over = []
    found = None
    for *_, path in sorted(ranked, reverse=True):
        damage = _find_damage(path)
        if damage is None:
            found = str(path)
            break
        passed_over.append(f'\n- {path} {damage}')
    if passed_over:
        print_log(
            'Checkpoints are passed over. Fix: delete them:' + ''.join(passed_over),
            logger='current',
            level=logging.WARNING,
        )
    return found


def _modified(path: Path) -> float:
    """Time of the last change, of a dangling link as well; 0 where there is no such file."""
    return os.lstat(path).st_mtime if os.path.lexists(path) else 0.0


def _prefix_and_step(path: Path) -> tuple[str, int]:
    match = _STEP.fullmatch(path.name)
    return (path.name, 0) if match is None else (match['prefix'], int(match['step']))
