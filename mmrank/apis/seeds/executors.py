"""Where the trainings of a plan run: processes of this machine, or jobs of Slurm by submitit.

What an executor starts has ``poll()``: None, or the fault of an ended command, empty for status 0;
and ``end()``, which ends it with all that it started.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from mmrank.apis.common.processes import end_process, start_process
from mmrank.errors import UserError
from mmrank.imports import required_package


def count_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_settings(threads: int) -> dict[str, str]:
    """Threads of a command, which decide the last bits of sums; what the user has set stays."""
    own = os.environ.get('OMP_NUM_THREADS', str(threads))
    mkl = os.environ.get('MKL_NUM_THREADS', own)
    return {'OMP_NUM_THREADS': own, 'MKL_NUM_THREADS': mkl, 'PYTHONUNBUFFERED': '1'}


def _fault_of(status: int) -> str:
    if status < 0:
        return f'killed by signal {-status}'
    return f'exit status {status}' if status else ''


class LocalExecutor:
    """Runs commands on this machine."""

    poll_seconds, file_seconds = 0.3, 0.0

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs

    def start(self, command: Sequence[str], log: Path, label: str) -> SimpleNamespace:
        """Start a command; OSError if it cannot be started."""
        environment = {**os.environ, **thread_settings(max(1, count_cores() // self.jobs))}
        process = start_process(command, log, env=environment)
        return SimpleNamespace(
            poll=lambda: None if process.poll() is None else _fault_of(process.returncode),
            end=lambda: end_process(process),
        )


class SlurmExecutor:
    """Submits a job for each command; ``options`` are submitit's."""

    # A written file may take a while to be seen here.
    poll_seconds, file_seconds = 5.0, 30.0

    def __init__(self, folder: Path, options: Mapping[str, str], jobs: int | None = None) -> None:
        with required_package('submitit', '--executor slurm', "pip install 'mmrank[slurm]'"):
            import submitit
        if 'timeout_min' not in options:  # the default of submitit is 5 minutes
            raise UserError(
                '`executor.timeout_min` is missing. Fix: the minutes that a job may take, such as '
                '--executor-options timeout_min=480'
            )
        self.jobs = jobs or float('inf')
        options = {key: int(x) if x.isdecimal() else x for key, x in options.items()}
        cluster = options.pop('cluster', 'slurm')
        self._threads = options.get('cpus_per_task', 1)
        try:
            self._executor = submitit.AutoExecutor(Path(folder).absolute(), cluster=cluster)
            self._executor.update_parameters(**options)
        except (RuntimeError, NameError, AssertionError, ValueError) as error:
            raise UserError(
                f'`executor` cannot be set up for Slurm: {str(error).splitlines()[0]} Fix: run it '
                'where sbatch is, with options of submitit, such as timeout_min=480 '
                'cpus_per_task=8 gpus_per_node=1 slurm_partition=gpu'
            ) from error

    def start(self, command: Sequence[str], log: Path, label: str) -> SimpleNamespace:
        """Submit a command; OSError if sbatch refuses it."""
        settings = [f'{key}={value}' for key, value in thread_settings(self._threads).items()]
        words = shlex.join(['env', *settings, *command])
        script = f'exec {words} >> {shlex.quote(str(log.absolute()))} 2>&1'
        self._executor.update_parameters(name=label)
        try:
            job = self._executor.submit(subprocess.call, ['sh', '-c', script], cwd=os.getcwd())
        except (RuntimeError, subprocess.SubprocessError) as error:
            raise OSError(f'sbatch failed: {error}') from error

        def poll() -> str | None:
            if not job.done():
                return None
            error = job.exception()
            return f'job {job.job_id} is lost: {error}' if error else _fault_of(job.result())

        return SimpleNamespace(poll=poll, end=lambda: job.cancel(check=False))
