"""The error that a user can fix, and how a command-line tool shows it."""

import errno
import functools
import re
import sys
from collections.abc import Callable

from mmrank import interruption

#: No space on the disk, for this user, or in one file (``ulimit -f``).
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(ValueError):
    """A file, a config or an argument that the user can correct.

    The message names the field, the value and the fix. A tool shows it
    without a traceback; see :func:`show_user_errors`.
    """


def show_user_errors(
    *also: type[Exception], on_interrupt: str = 'Interrupted.'
) -> Callable[[Callable], Callable[..., int]]:
    """Decorate the main function of a tool: one message, no traceback.

    So is any other error whose message has a ``Fix:``.

    Args:
        *also: Exceptions beside :class:`UserError` that in this tool come
            from the user's input: ``OSError`` where it names the file.
        on_interrupt: What to say after Ctrl-C: how to continue.

    Returns:
        The decorator. The function then returns its exit status: its own
        (None is 0), 2 for an error of the user's input, 130 after Ctrl-C.
    """

    def decorate(main: Callable) -> Callable[..., int]:
        @functools.wraps(main)
        def run(*args: object) -> int:
            interruption.restore_signals()  # what a tool handles in its imports
            try:
                return main(*args) or 0
            except (UserError, *also) as error:
                sys.stderr.write(f'error: {error}\n')
                return 2
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                sys.stderr.write(
                    f'error: {error}\n  Fix: free some disk space, or write to another disk\n'
                )
                return 2
            except Exception as error:
                # A message that says how to mend it is for the user, whoever raises it.
                message = str(error.args[0]) if len(error.args) == 1 else str(error)
                if 'Fix:' not in message:
                    raise
                # A worker of a data loader sends its whole traceback, the message last.
                message = re.split(r'^\w[\w.]*(?:Error|Exception): ', message, flags=re.M)[-1]
                sys.stderr.write(f'error: {message.strip()}\n')
                return 2
            except KeyboardInterrupt:
                sys.stderr.write(f'\n{on_interrupt}\n')
                return 130

        return run

    return decorate
