"""Ctrl-C and SIGTERM end a tool in order, and with its own message.

A ``KeyboardInterrupt`` may be raised inside an import or a bare ``except``. So until a training
loop runs, a signal ends the process on the spot; in the loop it sets a flag, which
:class:`mmrank.engine.hooks.InterruptHook` reads. A second signal ends the process. Tools call
:func:`end_on_signals` before slow imports: this has the standard library alone.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: Seconds within which a repeated signal is the same one: a launcher passes
#: on what the terminal has sent to all processes already.
_SAME_SIGNAL = 0.5
#: Seconds that a data loading worker outlives a SIGTERM, as Slurm sends it to all processes at
#: once: the iteration under way still needs its batch.
_WORKER_SECONDS = 10

#: What a tool says that goes on where it was.
AGAIN = 'Interrupted. Run the same command again to continue.'
#: What a training says.
RESUME = 'Interrupted. Pass --resume to mmrank train to continue from the last complete checkpoint.'

_message = RESUME
_before: dict[int, object] = {}  # handlers to put back
_owner = 0
_is_deferred = False
_received: int | None = None
_received_at = 0.0


class Interrupted(KeyboardInterrupt):
    """A training loop ended because a signal asked for it."""


def end_on_signals(message: str = RESUME) -> None:
    """Handle SIGINT and SIGTERM of this process from here on; the message says how to go on."""
    global _owner, _message
    _message = message
    if _before or threading.current_thread() is not threading.main_thread():
        return
    _owner = os.getpid()
    for number in SIGNALS:
        _before[number] = signal.signal(number, _handle)


def restore_signals() -> None:
    """Undo :func:`end_on_signals`."""
    global _received, _is_deferred
    for number, handler in _before.items():
        signal.signal(number, handler)
    _before.clear()
    _received = None
    _is_deferred = False


def defer_signals(defer: bool) -> None:
    """Let the next signal only set the flag, or end the process again."""
    global _is_deferred
    _is_deferred = defer


def is_deferred() -> bool:
    """Whether a training loop runs, which reads the flag."""
    return _is_deferred


def received_signal() -> int | None:
    """The deferred signal that arrived, if one did."""
    return _received


def take_signal(number: int) -> None:
    """Take a signal that another process received, to end with its status."""
    global _received
    _received = _received or number


def leave(number: int) -> NoReturn:
    """End the process with the message and the exit status of a signal."""
    if hasattr(signal, 'SIGCHLD'):
        # torch raises an error there when a data loading worker ends.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Not imported: the signal may have arrived inside that very import. Workers may take seconds to
    # end by themselves.
    processes = sys.modules.get('multiprocessing.process')
    children = [child.kill for child in list(getattr(processes, '_children', ()))]
    flushes = [sys.stdout.flush, getattr(sys.modules.get('logging'), 'shutdown', None)]
    for call in (*children, *flushes):
        with suppress(Exception):
            call()
    _say(_message)
    os._exit(128 + number)


def _handle(number: int, frame: object) -> None:
    global _received, _received_at
    if os.getpid() != _owner:  # a fork of the tool's process
        if number == signal.SIGTERM:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_WORKER_SECONDS)
        return
    if _is_deferred and _received is None:
        _received = number
        _received_at = time.monotonic()
        _say(
            'Interrupted: the training ends after this iteration. A second signal ends it at once.'
        )
    elif not _is_deferred or time.monotonic() - _received_at > _SAME_SIGNAL:
        leave(number)


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(2, f'\n{text}\n'.encode())
