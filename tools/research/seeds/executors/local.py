"""Commands as processes of this machine."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mmrank.errors import UserError

from .executor import fault_of, thread_settings
from .forked_command import ForkedCommand


def count_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_process(process: subprocess.Popen | ForkedCommand, patience: float = 10.0) -> None:
    """End a command and what it started."""
    group = os.getpgid(process.pid) if process.poll() is None else None
    if group is None:
        return
    os.killpg(group, signal.SIGTERM)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(group, signal.SIGKILL)
        process.wait()


class LocalExecutor:
    """Runs commands on this machine, which divide its cores.

    Args:
        jobs: Number of commands at a time.
        gpus: Indices of CUDA devices that the commands take turns on.
        forked: Fork the commands, which must be Python scripts, from one process that has done
            their imports.

    Raises:
        UserError: If ``jobs`` is below 1.
    """

    poll_seconds = 0.3
    file_seconds = 0.0

    def __init__(self, jobs: int = 1, gpus: Sequence[str] = (), forked: bool = False) -> None:
        if jobs < 1:
            raise UserError(f'`jobs` is {jobs}: at least one run at a time.')
        self.jobs = jobs
        self.gpus = tuple(gpus)
        self.forked = forked
        self._free = list(range(jobs))

    def start(self, command: Sequence[str], log: Path, label: str) -> '_LocalCommand':
        """Start a command; see :class:`.executor.Executor`."""
        slot = self._free.pop(0)
        environment = {**os.environ, **thread_settings(max(1, count_cores() // self.jobs))}
        if self.gpus:
            gpu = self.gpus[slot % len(self.gpus)]
            environment['CUDA_VISIBLE_DEVICES'] = gpu
        try:
            return _LocalCommand(
                self._process(command, log, environment), lambda: self._free.append(slot)
            )
        except BaseException:
            self._free.append(slot)
            raise

    def close(self) -> None:
        """Nothing is held."""

    def _process(self, command, log, environment):
        if self.forked:
            return ForkedCommand(command, log, environment)
        with open(log, 'ab') as output:
            return subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # an interrupt reaches us first
            )


class _LocalCommand:
    """A process, and the slot that it gives back."""

    def __init__(self, process, give_back) -> None:
        self._process, self._give_back = process, give_back

    def poll(self) -> str | None:
        if self._process.poll() is None:
            return None
        self._release()
        return fault_of(self._process.returncode)

    def end(self) -> None:
        end_process(self._process)
        self._release()

    def _release(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
