"""Run trainings side by side, resumably, and read their results."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mmrank.errors import UserError
from mmrank.files.folder_lock import FolderHeldError, FolderLock

from .forked_command import ForkedCommand
from .outcome import Outcome, read_result
from .plan import Run, SeedPlan

LOG_NAME = 'output.log'
_EPOCH = re.compile(
    r'Epoch\(train\)\s+\[\s*(\d+)\]\[\s*(\d+)/(\d+)\].*?'
    r'eta: ((?:\d+ days?, )?[\d:]+)'
)
_ITER = re.compile(
    r'Iter\(train\)\s+\[\s*(\d+)/(\d+)\].*?eta: ((?:\d+ days?, )?[\d:]+)'
)


def train_command(script: Path) -> str:
    """Template of :func:`build_command` for a script that trains and tests.

    Args:
        script: ``tools/benchmarks/train_and_test.py``.

    Returns:
        The template.
    """
    return (
        f'{{python}} "{script}" {{config}} '
        '--work-dir {work_dir} --split {split} --result {result} '
        '--cfg-options randomness.seed={seed} {cfg_options}'
    )


def build_command(template: str, run: Run) -> list[str]:
    """Fill in the command of a run.

    Args:
        template: Command line with the placeholders ``{python}``,
            ``{config}``, ``{work_dir}``, ``{split}``, ``{result}``,
            ``{seed}`` and, as a word of its own, ``{cfg_options}``.
        run: The run.

    Returns:
        The words of the command.

    Raises:
        UserError: When the template has an unknown placeholder or does not
            pass on the seed or the result's file.
    """
    for needed in ('{seed}', '{result}'):
        if needed not in template:
            raise UserError(f'The train command {template!r} lacks {needed}.')
    values = {
        'python': sys.executable,
        'config': run.config,
        'work_dir': str(run.folder),
        'split': run.split,
        'result': str(run.result_file),
        'seed': str(run.seed),
    }
    words = []
    for word in shlex.split(template):
        if word == '{cfg_options}':
            words += [f'{key}={value}' for key, value in run.options.items()]
            continue
        try:
            words.append(word.format_map(values))
        except (KeyError, ValueError, IndexError) as error:
            raise UserError(
                f'The train command has the word {word!r}; placeholders are '
                f'{sorted(values)} and cfg_options.'
            ) from error
    return words


def parse_progress(log: str) -> str:
    """Return the last progress in mmengine's log, in short form."""
    epochs, iters = _EPOCH.findall(log), _ITER.findall(log)
    if epochs:
        epoch, iteration, length, eta = epochs[-1]
        return f'epoch {epoch} iteration {iteration}/{length} eta {eta}'
    if iters:
        iteration, length, eta = iters[-1]
        return f'iteration {iteration}/{length} eta {eta}'
    return 'starting'


def read_tail(path: Path, size: int = 8192) -> str:
    """Read the last ``size`` bytes of a log that may be growing."""
    if not path.is_file():
        return ''
    with open(path, 'rb') as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read().decode(errors='replace')


class RunQueue:
    """Execute runs, some at a time; continue when one fails.

    A run whose result file is there is not run again; one that was
    interrupted is started with the same folder, from which its command
    resumes. Interrupting the queue ends the commands it started.

    Args:
        plan: The plan that the runs belong to.
        template: See :func:`build_command`.
        jobs: Number of runs at a time.
        gpus: Indices of CUDA devices that the runs take turns on.
        on_start: Called with a run when its command starts.
        on_progress: Called with a run and its progress, now and then.
        on_end: Called with each outcome.
        poll_seconds: Time between two looks at the running commands.
        forked: Fork the commands, which must be Python scripts, from one
            process that has done their imports.
    """

    def __init__(
        self,
        plan: SeedPlan,
        template: str,
        *,
        jobs: int = 1,
        gpus: Sequence[str] = (),
        on_start: Callable[[Run], None] = lambda run: None,
        on_progress: Callable[[Run, str], None] = lambda run, text: None,
        on_end: Callable[[Outcome], None] = lambda outcome: None,
        poll_seconds: float = 0.3,
        forked: bool = False,
    ) -> None:
        if jobs < 1:
            raise UserError(f'`jobs` is {jobs}: at least one run at a time.')
        self.plan = plan
        self.template = template
        self.jobs = jobs
        self.gpus = tuple(gpus)
        self.on_start = on_start
        self.on_progress = on_progress
        self.on_end = on_end
        self.poll_seconds = poll_seconds
        self.forked = forked

    def run(self, runs: Sequence[Run]) -> list[Outcome]:
        """Run all that is not finished.

        Args:
            runs: The runs, in the order in which to start them.

        Returns:
            Their outcomes in the same order.
        """
        outcomes: dict[int, Outcome] = {}
        waiting = []
        for index, run in enumerate(runs):
            if run.result_file.is_file():
                outcomes[index] = self._finish(run, 0.0)
            else:
                waiting.append(index)
        active: dict[
            int, tuple[subprocess.Popen | ForkedCommand, float, int]
        ] = {}
        slots = list(range(self.jobs))
        try:
            while waiting or active:
                while waiting and slots:
                    index, slot = waiting.pop(0), slots.pop(0)
                    process = self._start(runs[index], slot)
                    active[index] = (process, time.monotonic(), slot)
                time.sleep(self.poll_seconds)
                for index, (process, start, slot) in list(active.items()):
                    run = runs[index]
                    if process.poll() is None:
                        text = parse_progress(read_tail(run.folder / LOG_NAME))
                        self.on_progress(run, text)
                        continue
                    del active[index]
                    slots.append(slot)
                    outcomes[index] = self._finish(
                        run, time.monotonic() - start, process.returncode
                    )
        finally:
            for process, _, _ in active.values():
                end_process(process)
        return [outcomes[index] for index in range(len(runs))]

    def _start(self, run: Run, slot: int) -> subprocess.Popen | ForkedCommand:
        command = build_command(self.template, run)
        run.folder.mkdir(parents=True, exist_ok=True)
        self.on_start(run)
        with open(run.folder / LOG_NAME, 'ab') as log:
            log.write(f'\n$ {shlex.join(command)}\n'.encode())
            log.flush()
            if self.forked:
                return ForkedCommand(
                    command,
                    run.folder / LOG_NAME,
                    self._environment(slot),
                )
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self._environment(slot),
                start_new_session=True,  # an interrupt reaches us first
            )

    def _environment(self, slot: int) -> Mapping[str, str]:
        environment = dict(os.environ)
        threads = str(max(1, count_cores() // self.jobs))
        # Always the same number, whatever runs beside: results of a sum
        # depend on it in the last bits. On shared cores one is best, hence
        # what the user has set stays.
        threads = environment.setdefault('OMP_NUM_THREADS', threads)
        environment.setdefault('MKL_NUM_THREADS', threads)
        environment['PYTHONUNBUFFERED'] = '1'
        if self.gpus:
            gpu = self.gpus[slot % len(self.gpus)]
            environment['CUDA_VISIBLE_DEVICES'] = gpu
        return environment

    def _finish(self, run: Run, seconds: float, status: int = 0) -> Outcome:
        metrics, error = None, ''
        if status:
            error = f'exit status {status}'
        else:
            needed = (
                self.plan.metrics
                if run.split == 'test'
                else (self.plan.decisive_metric,)
            )
            try:
                metrics = read_result(run, needed)
            except UserError as problem:
                error = str(problem)
            else:
                if metrics is None:
                    error = f'no {run.result_file.name} was written'
        if error and not run.result_file.is_file():
            tail = read_tail(run.folder / LOG_NAME).splitlines()[-15:]
            error = '\n'.join([f'{error}; {run.folder / LOG_NAME}:', *tail])
        outcome = Outcome(run, metrics, seconds, error)
        self.on_end(outcome)
        return outcome


def count_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, as long as this one lives.

    Args:
        folder: Is created if it is not there.

    Raises:
        UserError: When another process holds the folder.
    """
    lock = FolderLock(folder / '.running')
    try:
        lock.acquire()
    except FolderHeldError as error:
        raise UserError(
            f'{error}: wait for it, or choose another folder.'
        ) from None
    with ExitStack() as stack:
        stack.callback(lock.release)
        yield


def end_process(
    process: subprocess.Popen | ForkedCommand, patience: float = 10.0
) -> None:
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
