"""One process at a time in a folder, and a message that names it."""

import json
import os
import shlex
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from mmrank.errors import UserError
from mmrank.files import process_lives, refuse_link

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None

# Of this process: the kernel does not refuse it a second lock, and a lock ends when its file is
# collected as garbage.
_HELD: dict[str, 'FolderLock'] = {}


class FolderHeldError(UserError):
    """Another process holds the folder; the message names it."""


class FolderLock:
    """Keeps other processes out of a folder, by a lock file in it, as long as this one lives.

    The kernel releases the lock when the process ends. The file, which stays, records the owner,
    which decides alone where the file system knows no locks; one of another host counts until its
    release.

    ``filelock`` is not enough: it locks by ``flock``, which data loading workers inherit, so that a
    killed training would hold the folder for as long as they live; and it names no owner.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path).absolute()
        self._file: IO[str] | None = None

    def acquire(self, force: bool = False) -> str | None:
        """Take the lock, or with ``force`` go on without it where another process has it.

        Returns the owner that died or was passed over, None if the folder was free. A
        :class:`FolderHeldError` says that another process, or this one, has it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if str(self.path) in _HELD:
            owner, is_gone = _this_process(), False
        else:
            refuse_link(self.path)
            self._file = open(self.path, 'a+', encoding='utf-8')  # noqa: SIM115
            owner, is_gone = self._find_owner()
        if owner and not is_gone:
            self._close()
            if not force:
                raise FolderHeldError(f'{self.path.parent} is in use by {_describe(owner)}')
            return _describe(owner)
        self._write(json.dumps(_this_process()))
        _HELD[str(self.path)] = self
        return _describe(owner) if owner else None

    def release(self) -> None:
        """Give the lock back. Does nothing where it is not held."""
        if self._file is not None:
            with suppress(OSError):
                self._write('')
            self._close()
            _HELD.pop(str(self.path), None)

    def __enter__(self) -> 'FolderLock':
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _find_owner(self) -> tuple[dict[str, Any], bool]:
        """The recorded owner, if any, and whether it is dead."""
        is_held = self._is_held()
        self._file.seek(0)
        owner: dict[str, Any] = {}
        with suppress(ValueError, TypeError):
            owner = dict(json.loads(self._file.read(4096)))
        if is_held or not owner:
            return owner or ({'pid': 'unknown'} if is_held else {}), False
        here = _this_process()
        if owner.get('boot') == here['boot']:
            # A lock of the kernel is proof; without one, look the owner up.
            return owner, is_held is False or not process_lives(owner.get('pid'))
        return owner, owner.get('host') == here['host']  # restarted, or another machine

    def _is_held(self) -> bool | None:
        """Whether another process has the kernel's lock; None where there are no locks."""
        if fcntl is None:
            return None
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:  # the file system has no locks
            return None
        return False

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _this_process() -> dict[str, Any]:
    host = socket.gethostname()
    try:
        boot = Path('/proc/sys/kernel/random/boot_id').read_text('ascii').strip()
    except OSError:  # not Linux
        boot = host
    return {
        'pid': os.getpid(),
        'host': host,
        'boot': boot,
        'since': time.strftime('%Y-%m-%d %H:%M:%S'),
        'command': shlex.join(sys.argv)[:1000],
    }


def _describe(owner: dict[str, Any]) -> str:
    text = f'process {owner.get("pid")} of host {owner.get("host", "unknown")}'
    return text + (f', since {owner["since"]} ({owner.get("command")})' if 'since' in owner else '')
