"""Run trainings side by side, resumably, and read their results."""

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mmrank.apis.folder_lock import FolderHeldError, FolderLock
from mmrank.errors import UserError

from .executors.executor import Executor, NotStarted, StartedCommand
from .executors.local import LocalExecutor
from .outcome import Outcome, read_result
from .plan import Run, SeedPlan

LOG_NAME = 'output.log'
_EPOCH = re.compile(
    r'Epoch\(train\)\s+\[\s*(\d+)\]\[\s*(\d+)/(\d+)\].*?'
    r'eta: ((?:\d+ days?, )?[\d:]+)'
)
_ITER = re.compile(r'Iter\(train\)\s+\[\s*(\d+)/(\d+)\].*?eta: ((?:\d+ days?, )?[\d:]+)')


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
        template: Command line with the placeholders ``{python}``, ``{config}``, ``{work_dir}``,
            ``{split}``, ``{result}``,
            ``{seed}`` and, as a word of its own, ``{cfg_options}``.
        run: The run.

    Returns:
        The words of the command.

    Raises:
        UserError: When the template has an unknown placeholder or does not pass on the seed or the
            result's file.
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
    interrupted is started with the same folder, from which its command resumes. A run that ends
    without a result, whatever ended it, is started once more behind all others; then its outcome
    says what went wrong. Interrupting the queue ends the commands it started.

    Args:
        plan: The plan that the runs belong to.
        template: See :func:`build_command`.
        executor: What runs the commands; None: this machine, one at a time.
        retries: How often a run without a result is started again.
        on_start: Called with a run when its command starts.
        on_again: Called with a run and its fault when it will be started again.
        on_progress: Called with a run and its progress, now and then.
        on_end: Called with each outcome.

    Raises:
        UserError: If ``retries`` is negative.
    """

    def __init__(
        self,
        plan: SeedPlan,
        template: str,
        executor: Executor | None = None,
        *,
        retries: int = 1,
        on_start: Callable[[Run], None] = lambda run: None,
        on_again: Callable[[Run, str], None] = lambda run, fault: None,
        on_progress: Callable[[Run, str], None] = lambda run, text: None,
        on_end: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        if retries < 0:
            raise UserError(f'`retries` is {retries}: set 0 or more.')
        self.plan = plan
        self.template = template
        self.executor = executor or LocalExecutor()
        self.retries = retries
        self.on_start = on_start
        self.on_again = on_again
        self.on_progress = on_progress
        self.on_end = on_end

    def run(self, runs: Sequence[Run]) -> list[Outcome]:
        """Run all that is not finished.

        Args:
            runs: The runs, in the order in which to start them.

        Returns:
            Their outcomes in the same order, one for each.
        """
        outcomes: dict[int, Outcome] = {}
        waiting = []
        for index, run in enumerate(runs):
            if run.result_file.is_file():
                outcomes[index] = self._finish(run, '', 0.0)
            else:
                waiting.append(index)
        active: dict[int, StartedCommand] = {}
        begins: dict[int, float] = {}
        attempts = dict.fromkeys(waiting, 0)
        try:
            while waiting or active:
                while waiting and len(active) < self.executor.jobs:
                    index = waiting.pop(0)
                    attempts[index] += 1
                    begins.setdefault(index, time.monotonic())
                    active[index] = self._start(runs[index])
                time.sleep(self.executor.poll_seconds)
                for index, command in list(active.items()):
                    run = runs[index]
                    fault = command.poll()
                    if fault is None:
                        text = parse_progress(read_tail(run.folder / LOG_NAME))
                        self.on_progress(run, text)
                        continue
                    del active[index]
                    # The result is written last, so it counts however its command went on to end.
                    fault = self._missing_result(run, fault)
                    if fault and attempts[index] <= self.retries:
                        self.on_again(run, fault)
                        waiting.append(index)
                        continue
                    if fault and attempts[index] > 1:
                        fault += f' (started {attempts[index]} times)'
                    seconds = time.monotonic() - begins[index]
                    outcomes[index] = self._finish(run, fault, seconds)
        finally:
            for command in active.values():
                command.end()
        return [outcomes[index] for index in range(len(runs))]

    def _start(self, run: Run) -> StartedCommand:
        command = build_command(self.template, run)
        run.folder.mkdir(parents=True, exist_ok=True)
        self.on_start(run)
        log = run.folder / LOG_NAME
        with open(log, 'ab') as file:
            file.write(f'\n$ {shlex.join(command)}\n'.encode())
        try:
            return self.executor.start(command, log, run.label)
        except OSError as error:
            return NotStarted(str(error))

    def _missing_result(self, run: Run, fault: str) -> str:
        """Why an ended run has no result; empty if it has one."""
        patience = 0.0 if fault else self.executor.file_seconds
        end = time.monotonic() + patience
        while not run.result_file.is_file():
            if time.monotonic() >= end:
                return fault or f'no {run.result_file.name} was written'
            time.sleep(1)
        return ''

    def _finish(self, run: Run, fault: str, seconds: float) -> Outcome:
        metrics, error = None, fault
        if fault:
            tail = read_tail(run.folder / LOG_NAME).splitlines()[-15:]
            error = '\n'.join([f'{fault}; {run.folder / LOG_NAME}:', *tail])
        else:
            needed = self.plan.metrics if run.split == 'test' else (self.plan.decisive_metric,)
            try:
                metrics = read_result(run, needed)
            except UserError as problem:
                error = str(problem)
        outcome = Outcome(run, metrics, seconds, error)
        self.on_end(outcome)
        return outcome


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
        raise UserError(f'{error}: wait for it, or choose another folder.') from None
    with ExitStack() as stack:
        stack.callback(lock.release)
        yield
