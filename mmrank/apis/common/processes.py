"""Start commands with their output in a log, and end them."""

import os
import signal
import subprocess
from collections.abc import Sequence


def start_process(command: Sequence[str], log: str | os.PathLike, **options) -> subprocess.Popen:
    """Start a command in a session of its own (an interrupt reaches us first), output to a log."""
    with open(log, 'ab') as output:
        options.update(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        return subprocess.Popen(command, start_new_session=True, **options)


def end_process(process: subprocess.Popen) -> None:
    """End a command and what it started."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
