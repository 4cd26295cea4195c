"""A command that a scheduler runs on one of its machines.

An instance is pickled, sent and called there; this module imports little, so that the process that
waits for a training stays small.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from .local import end_process

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
_LIBC = ctypes.CDLL(None) if sys.platform == 'linux' else None


class RemoteCommand:
    """Calls a command in the folder of the tool, its output to a log.

    The command ends with the process that called it: whoever kills that one,
    a scheduler or its node's memory limit, leaves no training behind that writes into the folder of
    its successor.

    Args:
        command: Its words; paths must mean the same there as here.
        log: File that its output is appended to.
        environment: Variables to set beside those of the machine.
    """

    def __init__(
        self, command: Sequence[str], log: str | os.PathLike, environment: Mapping[str, str]
    ) -> None:
        self.command = list(command)
        self.log = os.path.abspath(log)
        self.environment = dict(environment)
        self.folder = os.getcwd()
        self._process = None

    def __call__(self) -> int:
        """Run it; return its exit status, as of ``subprocess``."""
        with open(self.log, 'ab') as output:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
                start_new_session=True,
                # It calls into the C library alone, as between fork and exec it must.
                preexec_fn=_end_with_parent if _LIBC else None,
            )
        try:
            return self._process.wait()
        finally:
            end_process(self._process)

    def checkpoint(self):
        """Called by submitit before a time limit or a preemption.

        Returns:
            What submitit runs when the scheduler starts the job again: the same command, which
            resumes from its last checkpoint.
        """
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            end_process(self._process)
        return DelayedSubmission(self)

    def __getstate__(self) -> dict:
        """All but the process."""
        return {**self.__dict__, '_process': None}


def _end_with_parent() -> None:
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL)
