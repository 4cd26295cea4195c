"""The error that a user can fix, and how a command-line tool shows it."""

import errno
import functools
import os
import re
import sys
from collections.abc import Callable

from mmrank import interruption

_FULL = 'free some disk space, or write to another disk'
_DENIED = 'name a file in a folder of yours, or ask for the right to this one'
_NO_FOLDER = 'name another path: a file is where a folder is needed, or the other way round'
_PORT = 'another port, MASTER_PORT=29511 (PORT for dist_train.sh), or end the process that has it'
_MEMORY = 'a smaller batch_size or smaller images, or fewer num_workers'
#: What the machine refuses, whatever the config says, and what helps.
_BY_NUMBER = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _DENIED),
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.EEXIST), _NO_FOLDER),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), 'fewer num_workers, or raise ulimit -n'),
    errno.ENAMETOOLONG: 'a shorter name',
    errno.EIO: 'check the disk; copy the file again if it was read',
    errno.EADDRINUSE: _PORT,
    errno.ENOMEM: _MEMORY,
}
#: The same of errors without a number, by their types and texts.
_BY_TEXT = {
    r'EADDRINUSE|address already in use': _PORT,
    r'DistNetworkError|DistStoreError': 'check MASTER_ADDR, MASTER_PORT and the network',
    r'^(OutOfMemoryError|MemoryError)': _MEMORY,
    r'PytorchStreamWriter failed writing|unexpected pos \d': _FULL,
    r'DataLoader worker .*(killed|exited unexpectedly)': 'fewer num_workers, or more memory, in a '
    'container also docker run --shm-size=8g',
}


class UserError(ValueError):
    """A file, a config or an argument that the user can correct.

    The message names the field, the value and the fix. A tool shows it without a traceback; see
    :func:`show_user_errors`. Classes that are another error of Python, too, are below.

    Args:
        message: What is wrong, and where; it may end with the fix.
        fix: How to mend it, if the message does not say so.
    """

    def __init__(self, message: str, fix: str = '') -> None:
        super().__init__(f'{message}. Fix: {fix}' if fix else message)


class UserTypeError(UserError, TypeError):
    """An argument of a type that is not taken."""


class UserKeyError(UserError, KeyError):
    """A name that is not registered."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError shows its text in quotes


class UserImportError(UserError, ImportError):
    """A package that is not installed, or a name that it does not have."""


class MissingFileError(UserError, FileNotFoundError):
    """A file that is not there."""


class UserNotImplementedError(UserError, NotImplementedError):
    """What another package offers and mmrank has nothing for."""


def machine_fault(error: BaseException) -> str | None:
    """One message of an error that no config can cause, such as a full disk; None for another."""
    if isinstance(error, UserError):
        return None
    if isinstance(error, OSError) and error.errno in _BY_NUMBER:
        where = f': {error.filename}' if error.filename else ''
        return f'{error.strerror}{where}\n  Fix: {_BY_NUMBER[error.errno]}'
    text = f'{type(error).__name__}: {error}'
    for pattern, fix in _BY_TEXT.items():
        if re.search(pattern, text):
            return f'{text.strip().splitlines()[0]:.300}\n  Fix: {fix}'
    return None


def _described(error: Exception) -> str:
    """Message of a user's error; a missing file names itself, but not where it was looked for."""
    if isinstance(error, UserError):
        message = str(error)
        if message.startswith('Caught '):
            # A worker of a data loader sends its whole traceback, the message last.
            message = re.split(r'^\w[\w.]*(?:Error|Exception): ', message, flags=re.M)[-1]
        return message.strip()
    path = ''
    if isinstance(error, FileNotFoundError):
        path = f'\n  Fix: correct the path; relative ones start at {os.getcwd()}'
    return machine_fault(error) or f'{error}{path}'


def show_user_errors(
    *also: type[Exception], on_interrupt: str = 'Interrupted.'
) -> Callable[[Callable], Callable[..., int]]:
    """Decorate the main function of a tool: one message, no traceback; see :func:`machine_fault`.

    The function then returns its exit status: its own (None is 0), 2 for an error of the user's
    input, 130 after Ctrl-C.

    Args:
        *also: Exceptions that in this tool come from the user's input, as :class:`UserError` does:
            ``OSError`` where it names the file.
        on_interrupt: What to say after Ctrl-C: how to continue.
    """

    def decorate(main: Callable) -> Callable[..., int]:
        @functools.wraps(main)
        def run(*args: object) -> int:
            interruption.restore_signals()  # what a tool handles in its imports
            try:
                return main(*args) or 0
            except BrokenPipeError:
                raise  # not a file that the user names
            except (UserError, *also) as error:
                sys.stderr.write(f'error: {_described(error)}\n')
                return 2
            except Exception as error:
                if fault := machine_fault(error):
                    sys.stderr.write(f'error: {fault}\n')
                    return 2
                raise
            except KeyboardInterrupt:
                sys.stderr.write(f'\n{on_interrupt}\n')
                return 130

        return run

    return decorate
