"""Commands as jobs of Slurm, by submitit."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.required_package import required_package

from .executor import fault_of, thread_settings
from .remote_command import RemoteCommand

#: What the options are called by submitit; all others are those of sbatch.
_SUBMITIT_NAMES = {
    'time': 'timeout_min',
    'cpus': 'cpus_per_task',
    'gpus': 'gpus_per_node',
    'memory_gb': 'mem_gb',
}
_CLUSTERS = ('slurm', 'local', 'debug')
# Of submitit's trials on this machine, which have no partition to limit them.
_TRIAL_MINUTES = 7 * 24 * 60


def minutes(text: str) -> int:
    """Minutes of a time limit, as sbatch reads it.

    Args:
        text: ``'90'`` minutes, ``'MM:SS'``, ``'HH:MM:SS'``, ``'D-HH'``, ``'D-HH:MM'`` or
            ``'D-HH:MM:SS'``.

    Returns:
        Minutes, rounded up.

    Raises:
        UserError: If it is none of these.
    """
    found = re.fullmatch(r'(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?', str(text))
    if found is None or not any(int(x or 0) for x in found.groups()):
        raise UserError(
            f'`executor.time` is {text!r}: set minutes, or a limit such as '
            "'8:00:00' or '1-12:00:00' (in quotes in a plan file)."
        )
    days, *parts = (None if x is None else int(x) for x in found.groups())
    parts = [x for x in parts if x is not None]
    if days is not None:
        parts += [0] * (3 - len(parts))
    elif len(parts) < 3:  # minutes first
        parts = [0, *parts, *([0] * (2 - len(parts)))]
    hours, mins, secs = parts
    return ((days or 0) * 24 + hours) * 60 + mins + (secs > 0)


class SlurmExecutor:
    """Submits a job for each command.

    A time limit or a preemption that Slurm announces starts the job again,
    up to three times for time limits; its command resumes. A tool that was killed leaves its jobs;
    the next one finds them by the record in their folders and waits for them, rather than
    submitting them a second time.

    Args:
        folder: Where submitit keeps its files; on a disk that all machines share, as are the
            folders of the runs.
        options: ``time`` (see :func:`minutes`), ``cpus``, ``gpus`` and ``memory_gb`` of a job;
            ``partition``, ``account``, ``qos``, ``constraint`` and what else submitit passes to
            sbatch; ``cluster``: ``'slurm'``, or ``'local'`` or ``'debug'`` to try a plan on this
            machine.
        jobs: Most jobs at a time; None leaves it to Slurm.

    Raises:
        UserError: If there is no Slurm here or an option is missing, unknown or wrong.
        ImportError: If submitit is not installed, or is too old.
    """

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
        try:
            self._executor = submitit.AutoExecutor(Path(folder).absolute(), cluster=self.cluster)
            self._executor.update_parameters(**parameters)
        except (RuntimeError, NameError, AssertionError, ValueError) as error:
            # Of a missing srun, an unknown option, and one of a wrong type.
            raise UserError(f'`executor` cannot be set up for Slurm: {error}') from error

    def start(self, command: Sequence[str], log: Path, label: str) -> '_SlurmJob':
        """Submit a command; see :class:`.executor.Executor`."""
        record = log.with_name('slurm_job.json')
        job = self._left_behind(record)
        if job is None:
            settings = thread_settings(self.cpus)
            self._executor.update_parameters(name=label)
            try:
                job = self._executor.submit(RemoteCommand(command, log, settings))
            except (RuntimeError, subprocess.SubprocessError) as error:
                # What submitit raises where sbatch refuses a job.
                raise OSError(f'sbatch failed: {error}') from error
            if self.cluster == 'slurm':
                content = dict(id=job.job_id, folder=str(job.paths.folder))
                write_atomically(json.dumps(content).encode(), record)
        with open(log, 'ab') as file:
            file.write(f'job {job.job_id} of {self.cluster}\n'.encode())
        return _SlurmJob(job, record)

    def close(self) -> None:
        """Nothing is held."""

    def _left_behind(self, record: Path):
        """The job that an earlier tool submitted, if it is still there."""
        if self.cluster != 'slurm' or not record.is_file():
            return None
        content = json.loads(record.read_text())
        job = self._job_class(content['folder'], content['id'])
        # Of a job that Slurm has forgotten there is no information.
        if job.get_info(mode='force') and not job.done(force_check=True):
            return job
        return None


def _parameters(options: Mapping[str, str], cluster: str) -> dict:
    """Parameters of submitit's ``AutoExecutor``."""
    parameters = {}
    for key, value in options.items():
        if key == 'time':
            value = minutes(value)
        elif key in ('cpus', 'gpus', 'memory_gb'):
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
    """A job of submitit."""

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
