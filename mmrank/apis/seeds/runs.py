"""Run trainings side by side, resumably, and read their results."""

import json
import math
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from mmrank.errors import UserError
from mmrank.files import refuse_link

from .executors import LocalExecutor, SlurmExecutor
from .plan import Run, SeedPlan

LOG_NAME = 'output.log'
#: Trains, tests and writes the result file of a run.
SCRIPT = ('-m', 'mmrank.apis.seeds.train_and_test')
_ETA = r'.*?eta: ((?:\d+ days?, )?[\d:]+)'
_EPOCH = re.compile(r'Epoch\(train\)\s+\[\s*(\d+)\]\[\s*(\d+)/(\d+)\]' + _ETA)
_ITER = re.compile(r'Iter\(train\)\s+\[\s*(\d+)/(\d+)\]' + _ETA)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: metrics, or None and the error; ``seconds`` that it took now."""

    run: Run
    metrics: dict[str, float] | None
    seconds: float = 0.0
    error: str = ''


def read_result(run: Run, metrics: Sequence[str] = ()) -> dict | None:
    """Read the metrics of a run; None when it is not finished."""
    if not run.result_file.is_file():
        return None
    try:
        found = json.loads(run.result_file.read_text())['metrics']
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(
            f'{run.result_file} is not a valid result ({error!r}): delete it to run the training '
            'again.'
        ) from error
    missing = [key for key in metrics if key not in found]
    if missing:
        raise UserError(
            f'{run.result_file} has no metric {missing}; it has {sorted(found)}. Change `metrics`; '
            'nothing is trained again.'
        )
    numbers = {key: float(value) for key, value in found.items() if isinstance(value, (int, float))}
    finite = {key: value for key, value in numbers.items() if math.isfinite(value)}
    if diverged := [key for key in metrics if key not in finite]:
        raise UserError(
            f'{run.result_file}: {diverged[0]} is {found[diverged[0]]}. Fix: a setting with which '
            'the training does not diverge, such as a lower learning rate'
        )
    return finite


def build_command(run: Run) -> list[str]:
    """The command of a run."""
    command = [sys.executable, *SCRIPT, run.config, '--work-dir', str(run.folder)]
    command += ['--split', run.split, '--cfg-options', f'randomness.seed={run.seed}']
    return command + [f'{key}={value}' for key, value in run.options.items()]


def parse_progress(log: str) -> str:
    """The last progress in mmengine's log, in short form."""
    if epochs := _EPOCH.findall(log):
        return 'epoch {} iteration {}/{} eta {}'.format(*epochs[-1])
    if iterations := _ITER.findall(log):
        return 'iteration {}/{} eta {}'.format(*iterations[-1])
    return 'starting'


def read_tail(path: Path, size: int = 8192) -> str:
    """Read the last ``size`` bytes of a log that may be growing."""
    if not path.is_file():
        return ''
    with open(path, 'rb') as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read().decode(errors='replace')


class RunQueue:
    """Execute runs; continue when one fails."""

    def __init__(
        self,
        plan: SeedPlan,
        executor: LocalExecutor | SlurmExecutor | None = None,
        *,
        retries: int = 1,
    ) -> None:
        if retries < 0:
            raise UserError(f'`retries` is {retries}: set 0 or more.')
        self.plan, self.retries = plan, retries
        self.executor = executor or LocalExecutor()
        # What shows the runs replaces these.
        self.on_start: Callable[[Run], None] = lambda run: None
        self.on_again: Callable[[Run, str], None] = lambda run, fault: None
        self.on_progress: Callable[[Run, str], None] = lambda run, text: None
        self.on_end: Callable[[Outcome], None] = lambda outcome: None

    def run(self, runs: Sequence[Run]) -> list[Outcome]:
        """Run all that is not finished, in this order; return the outcomes in the same order."""
        outcomes: dict[int, Outcome] = {}
        waiting = []
        for index, run in enumerate(runs):
            if run.result_file.is_file():
                outcomes[index] = self._finish(run, '', 0.0)
            else:
                waiting.append(index)
        active, begins = {}, {}
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
                        self.on_progress(run, parse_progress(read_tail(run.folder / LOG_NAME)))
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
                    outcomes[index] = self._finish(run, fault, time.monotonic() - begins[index])
        finally:
            for command in active.values():
                command.end()
        return [outcomes[index] for index in range(len(runs))]

    def _start(self, run: Run):
        command = build_command(run)
        run.folder.mkdir(parents=True, exist_ok=True)
        self.on_start(run)
        log = run.folder / LOG_NAME
        refuse_link(log)
        with open(log, 'ab') as file:
            file.write(f'\n$ {shlex.join(command)}\n'.encode())
        try:
            return self.executor.start(command, log, run.label)
        except OSError as error:
            fault = str(error)
            return SimpleNamespace(poll=lambda: fault, end=lambda: None)

    def _missing_result(self, run: Run, fault: str) -> str:
        """Why an ended run has no result; empty if it has one."""
        end = time.monotonic() + (0.0 if fault else self.executor.file_seconds)
        while not run.result_file.is_file():
            if time.monotonic() >= end:
                return fault or f'no {run.result_file.name} was written'
            time.sleep(1)
        return ''

    def _finish(self, run: Run, fault: str, seconds: float) -> Outcome:
        metrics, error = None, fault
        if fault:
            log = run.folder / LOG_NAME
            error = '\n'.join([f'{fault}; {log}:', *read_tail(log).splitlines()[-15:]])
        else:
            needed = self.plan.metrics if run.split == 'test' else (self.plan.decisive_metric,)
            try:
                metrics = read_result(run, needed)
            except UserError as problem:
                error = str(problem)
        outcome = Outcome(run, metrics, seconds, error)
        self.on_end(outcome)
        return outcome
