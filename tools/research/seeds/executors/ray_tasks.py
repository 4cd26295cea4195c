"""Commands as tasks of Ray."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmrank.errors import UserError
from mmrank.required_package import required_package

from .executor import fault_of, thread_settings
from .local import count_cores
from .remote_command import RemoteCommand

# Seconds that a cancelled command has to end.
_PATIENCE = 15.0
# Bytes for what tasks share: a command and its exit status.
_STORE = 2**27


class RayExecutor:
    """Runs a task for each command, on a cluster or on this machine.

    Args:
        options: ``cpus`` (1) and ``gpus`` (0) of a command; ``address`` of
            the cluster: that of ``RAY_ADDRESS``, if set, or ``'local'``,
            which starts Ray on this machine.
        jobs: Most commands at a time; None leaves it to Ray. Ray on this machine has so many
            workers, or one for each core.

    Raises:
        UserError: If an option is unknown or wrong, or there is no cluster.
        ImportError: If Ray is not installed, or is too old.
    """

    poll_seconds = 0.3
    file_seconds = 30.0

    def __init__(self, options: Mapping[str, str], jobs: int | None = None) -> None:
        with required_package('ray', '--executor ray', "pip install 'mmrank[ray]'"):
            import ray
        options = {'cpus': '1', 'gpus': '0', **options}
        address = options.pop('address', os.environ.get('RAY_ADDRESS'))
        try:
            self.cpus = int(options.pop('cpus'))
            self.gpus = float(options.pop('gpus'))
        except ValueError as error:
            raise UserError(f'`executor.cpus` and `executor.gpus` are numbers: {error}.') from None
        if options:
            raise UserError(
                f'`executor` has the options {sorted(options)}, which Ray '
                'does not know; known are address, cpus, gpus.'
            )
        self.jobs = jobs or float('inf')
        settings = dict(log_to_driver=False, logging_level='ERROR')
        if address in (None, 'local'):
            workers = (jobs or 0) * self.cpus
            settings.update(
                address='local',
                num_cpus=max(workers, count_cores()),
                include_dashboard=False,
                object_store_memory=_STORE,
            )
            # It is on this machine, and nobody counts it.
            os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
        else:
            settings['address'] = address
        try:
            ray.init(**settings)
        except Exception as error:  # of a slow start Ray raises a bare one
            raise UserError(
                f'`executor.address` is {address!r}, and there Ray does not '
                f'start or answer: {error}'
            ) from error
        self._ray = ray
        # The queue itself starts again what has died, and says so.
        self._task = ray.remote(max_retries=0)(_call)

    def start(self, command: Sequence[str], log: Path, label: str) -> '_RayTask':
        """Start a command; see :class:`.executor.Executor`."""
        remote = RemoteCommand(command, log, thread_settings(self.cpus))
        task = self._task.options(num_cpus=self.cpus, num_gpus=self.gpus, name=label)
        return _RayTask(self._ray, task.remote(remote))

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        self._ray.shutdown()


def _call(command: RemoteCommand) -> int:
    return command()


class _RayTask:
    """A task of Ray."""

    def __init__(self, ray, reference) -> None:
        self._ray, self._reference = ray, reference

    def poll(self) -> str | None:
        done, _ = self._ray.wait([self._reference], timeout=0)
        if not done:
            return None
        try:
            return fault_of(self._ray.get(self._reference))
        except self._ray.exceptions.RayError as error:
            return f'{type(error).__name__}: {error}'

    def end(self) -> None:
        self._ray.cancel(self._reference)
        done, _ = self._ray.wait([self._reference], timeout=_PATIENCE)
        if not done:
            self._ray.cancel(self._reference, force=True)
