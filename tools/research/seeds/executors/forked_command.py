"""Python commands whose packages are imported once, not by each of them."""

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path


def preload_modules(names: Sequence[str]) -> None:
    """Set what is imported once, before the first :class:`ForkedCommand`.

    Args:
        names: Modules; those that are not installed are left out.
    """
    get_context('forkserver').set_forkserver_preload(list(names))


class ForkedCommand:
    """``python SCRIPT ...`` in a fork of a process with the imports done.

    For commands that take not much longer than importing torch and OpenMMLab. What
    ``subprocess.Popen`` offers is offered as far as
    :class:`research.seeds.executors.local.LocalExecutor` requires it.

    Args:
        command: Python (not used), script and arguments.
        log: File that the output is appended to.
        environment: Environment variables.
    """

    def __init__(
        self, command: Sequence[str], log: str | os.PathLike, environment: Mapping[str, str]
    ) -> None:
        self.args = list(command)
        self._process = get_context('forkserver').Process(
            target=_run, args=(self.args[1:], str(log), dict(environment), os.getcwd())
        )
        self._process.start()
        # Until it has a process group of its own, ending its group would end ours.
        while self.poll() is None and os.getpgid(self.pid) != self.pid:
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """Process number, also that of its group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: After ``timeout`` seconds.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


def _run(words: list[str], log: str, environment: dict[str, str], folder: str) -> None:
    os.setsid()
    with open(os.devnull) as nothing, open(log, 'ab') as file:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if 'torch' in sys.modules and 'OMP_NUM_THREADS' in environment:
        # Read when torch was imported.
        sys.modules['torch'].set_num_threads(int(environment['OMP_NUM_THREADS']))
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name='__main__')
