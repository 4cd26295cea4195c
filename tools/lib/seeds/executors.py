"""Where the trainings of a plan run: processes of this machine, or jobs of Slurm by submitit.

submitit's local executor does not replace the processes here: it has no turns on GPUs and no forks
of a process with the imports done, and a plain installation lacks it.

An executor has ``jobs``, the commands at a time; ``poll_seconds`` between two looks at them;
``file_seconds``, how long a written file may take to be seen here; and ``start(command, log,
label)``. What that returns has ``poll()``: None, or the fault of an ended command, empty for status
0; and ``end()``, which ends it with all that it started.
"""

import ctypes
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.imports import required_package

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
_LIBC = ctypes.CDLL(None) if sys.platform == 'linux' else None
#: What the options are called by submitit; all others are sbatch's.
_SUBMITIT_NAMES = dict(
    time='timeout_min', cpus='cpus_per_task', gpus='gpus_per_node', memory_gb='mem_gb'
)
#: Imported once for all forked trainings, and of each scope.
_PRELOADED = (
    'mmengine.runner',
    'mmrank.models',
    'mmrank.datasets.registered',
    'mmrank.engine.hooks',
    'mmrank.visualization',
)
_SCOPED = ('models', 'datasets', 'evaluation', 'visualization')
_CLUSTERS = ('slurm', 'local', 'debug')
# submitit's trials on this machine have no partition to limit them.
_TRIAL_MINUTES = 7 * 24 * 60


def count_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fault_of(status: int) -> str:
    """Fault of a command by its exit status, as ``subprocess`` gives it."""
    if status < 0:
        return f'killed by signal {-status}'
    return f'exit status {status}' if status else ''


def thread_settings(threads: int) -> dict[str, str]:
    """Threads of a command, which decide the last bits of sums; what the user has set stays."""
    own = os.environ.get('OMP_NUM_THREADS', str(threads))
    return {
        'OMP_NUM_THREADS': own,
        'MKL_NUM_THREADS': os.environ.get('MKL_NUM_THREADS', own),
        'PYTHONUNBUFFERED': '1',
    }


def start_process(command: Sequence[str], log: str | os.PathLike, **options) -> subprocess.Popen:
    """Start a command in a session of its own (an interrupt reaches us first), output to a log."""
    with open(log, 'ab') as output:
        options.update(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        return subprocess.Popen(command, start_new_session=True, **options)


def end_process(process: 'subprocess.Popen | ForkedCommand', patience: float = 10.0) -> None:
    """End a command and what it started."""
    if process.poll() is not None:
        return
    group = os.getpgid(process.pid)
    os.killpg(group, signal.SIGTERM)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(group, signal.SIGKILL)
        process.wait()


def preload_modules(scopes: Iterable[str | None]) -> None:
    """Set what is imported before the first :class:`ForkedCommand`, as far as it is installed.

    Args:
        scopes: Default scopes of the configs.
    """
    scoped = [f'{scope}.{name}' for scope in sorted(filter(None, {*scopes})) for name in _SCOPED]
    get_context('forkserver').set_forkserver_preload([*_PRELOADED, *scoped])


def start_fork_server() -> None:
    """Wait until all is imported, so that the first command takes no longer than others."""
    process = get_context('forkserver').Process(target=int)
    process.start()
    process.join()


class ForkedCommand:
    """``python SCRIPT ...`` in a fork with the imports done; has what is needed of ``Popen``."""

    def __init__(
        self, command: Sequence[str], log: str | os.PathLike, environment: Mapping[str, str]
    ) -> None:
        self.args = list(command)
        self._process = get_context('forkserver').Process(
            target=_run_script, args=(self.args[1:], str(log), dict(environment), os.getcwd())
        )
        self._process.start()
        self.pid = self._process.pid
        # Until it has a process group of its own, ending its group would end ours.
        while self.poll() is None and os.getpgid(self.pid) != self.pid:
            time.sleep(0.01)

    def poll(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, as ``Popen.wait``."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


def _run_script(words: list[str], log: str, environment: dict[str, str], folder: str) -> None:
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


class LocalExecutor:
    """Runs commands on this machine, in turn on ``gpus``, with ``forked`` from one process."""

    poll_seconds = 0.3
    file_seconds = 0.0

    def __init__(self, jobs: int = 1, gpus: Sequence[str] = (), forked: bool = False) -> None:
        self.jobs = jobs
        self.gpus = tuple(gpus)
        self.forked = forked
        self._free = list(range(jobs))

    def start(self, command: Sequence[str], log: Path, label: str) -> '_LocalCommand':
        """Start a command; OSError if it cannot be started."""
        slot = self._free.pop(0)
        environment = {**os.environ, **thread_settings(max(1, count_cores() // self.jobs))}
        if self.gpus:
            environment['CUDA_VISIBLE_DEVICES'] = self.gpus[slot % len(self.gpus)]
        try:
            if self.forked:
                process = ForkedCommand(command, log, environment)
            else:
                process = start_process(command, log, env=environment)
        except BaseException:
            self._free.append(slot)
            raise
        return _LocalCommand(process, lambda: self._free.append(slot))


class _LocalCommand:
    """A process, and the slot that it gives back once."""

    def __init__(self, process: subprocess.Popen | ForkedCommand, give_back: Callable) -> None:
        self._process, self._give_back = process, give_back

    def poll(self) -> str | None:
        if self._process.poll() is None:
            return None
        self.end()
        return fault_of(self._process.returncode)

    def end(self) -> None:
        end_process(self._process)
        give_back = self._give_back
        self._give_back = lambda: None
        give_back()


class RemoteCommand:
    """Calls a command, its output to a log; the command ends with the process that called it."""

    def __init__(
        self, command: Sequence[str], log: str | os.PathLike, environment: Mapping[str, str]
    ) -> None:
        self.command = list(command)
        self.log = os.path.abspath(log)
        self.environment = dict(environment)
        self.folder = os.getcwd()
        self._process = None

    def __call__(self) -> int:
        """Run it; return its exit status, as ``subprocess`` gives it."""
        self._process = start_process(
            self.command,
            self.log,
            cwd=self.folder,
            env={**os.environ, **self.environment},
            # It calls into the C library alone, as between fork and exec it must.
            preexec_fn=(lambda: _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL)) if _LIBC else None,
        )
        try:
            return self._process.wait()
        finally:
            end_process(self._process)

    def checkpoint(self):
        """Called by submitit before a time limit or preemption: the same command, which resumes."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            end_process(self._process)
        return DelayedSubmission(self)

    def __getstate__(self) -> dict:
        return {**self.__dict__, '_process': None}


def minutes(text: str) -> int:
    """Minutes, rounded up, of a time limit as sbatch reads it: ``'90'``, ``'1-12:00:00'``, ..."""
    found = re.fullmatch(r'(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?', str(text))
    if found is None or not any(int(x or 0) for x in found.groups()):
        raise UserError(
            f'`executor.time` is {text!r}: set minutes, or a limit such as '
            "'8:00:00' or '1-12:00:00' (in quotes in a plan file)."
        )
    days, *parts = found.groups()
    parts = [int(x) for x in parts if x is not None]
    if days is None and len(parts) < 3:  # minutes first
        parts = [0, *parts]
    hours, mins, secs = (*parts, 0, 0)[:3]
    return (int(days or 0) * 24 + hours) * 60 + mins + (secs > 0)


class SlurmExecutor:
    """Submits a job for each command."""

    file_seconds = 30.0

    def __init__(self, folder: Path, options: Mapping[str, str], jobs: int | None = None) -> None:
        with required_package('submitit', '--executor slurm', "pip install 'mmrank[slurm]'"):
            import submitit
        options = dict(options)
        self.cluster = options.pop('cluster', 'slurm')
        if self.cluster not in _CLUSTERS:
            raise UserError(f'`executor.cluster` is {self.cluster!r}: set one of {_CLUSTERS}.')
        self.jobs = jobs or float('inf')
        self.poll_seconds = 5.0 if self.cluster == 'slurm' else 0.3
        parameters = _parameters(options, self.cluster)
        self.cpus = parameters.get('cpus_per_task', 1)
        self._job_class = submitit.SlurmJob
        # A job unpickles RemoteCommand from this package, which is installed nowhere.
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get('PYTHONPATH', '')]
        os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
        try:
            self._executor = submitit.AutoExecutor(Path(folder).absolute(), cluster=self.cluster)
            self._executor.update_parameters(**parameters)
        except (RuntimeError, NameError, AssertionError, ValueError) as error:
            # A missing srun, an unknown option, one of a wrong type.
            raise UserError(f'`executor` cannot be set up for Slurm: {error}') from error

    def start(self, command: Sequence[str], log: Path, label: str) -> '_SlurmJob':
        """Submit a command; OSError if sbatch refuses it."""
        record = log.with_name('slurm_job.json')
        job = self._left_behind(record)
        if job is None:
            self._executor.update_parameters(name=label)
            try:
                job = self._executor.submit(RemoteCommand(command, log, thread_settings(self.cpus)))
            except (RuntimeError, subprocess.SubprocessError) as error:
                raise OSError(f'sbatch failed: {error}') from error
            if self.cluster == 'slurm':
                content = dict(id=job.job_id, folder=str(job.paths.folder))
                write_atomically(json.dumps(content).encode(), record)
        with open(log, 'ab') as file:
            file.write(f'job {job.job_id} of {self.cluster}\n'.encode())
        return _SlurmJob(job, record)

    def _left_behind(self, record: Path):
        """The job that an earlier tool submitted, if it is still there."""
        if self.cluster != 'slurm' or not record.is_file():
            return None
        content = json.loads(record.read_text())
        job = self._job_class(content['folder'], content['id'])
        # Slurm has no information about a job that it has forgotten.
        alive = job.get_info(mode='force') and not job.done(force_check=True)
        return job if alive else None


def _parameters(options: Mapping[str, str], cluster: str) -> dict:
    """Parameters of submitit's ``AutoExecutor``."""
    parameters = {}
    for key, value in options.items():
        if key == 'time':
            value = minutes(value)
        elif key in _SUBMITIT_NAMES:
            try:
                value = int(value)
            except ValueError:
                raise UserError(f'`executor.{key}` is {value!r}: set an integer.') from None
        parameters[_SUBMITIT_NAMES.get(key, f'slurm_{key}')] = value
    if 'time' not in options:
        if cluster == 'slurm':
            raise UserError(
                '`executor.time` is missing: set the time limit of a job, for example '
                '--executor-options time=8:00:00. (The default of submitit is 5 minutes.)'
            )
        parameters['timeout_min'] = _TRIAL_MINUTES
    return parameters


class _SlurmJob:
    """A job of submitit, and the record by which it is found again."""

    def __init__(self, job, record: Path) -> None:
        self._job, self._record = job, record

    def poll(self) -> str | None:
        if not self._job.done():
            return None
        self._record.unlink(missing_ok=True)
        error = self._job.exception()
        if error is not None:
            return f'job {self._job.job_id} is lost: {error}'
        return fault_of(self._job.result())

    def end(self) -> None:
        self._job.cancel(check=False)
        self._record.unlink(missing_ok=True)
