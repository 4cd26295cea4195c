"""Run trainings side by side, resumably, and read their results."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmrank.apis.common.processes import end_process, start_process
from mmrank.errors import UserError
from mmrank.files import read_text, refuse_link

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


def read_facts(run: Run) -> dict:
    """Read what a finished run has left: metrics, validations on the way, seconds, commit."""
    file = run.result_file
    try:
        facts = json.loads(read_text(file, 'result', 'remove it, to train again'))
        curve = [(int(step), dict(found)) for step, found in facts.get('curve', [])]
        return {**facts, 'metrics': dict(facts['metrics']), 'curve': curve}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f'{file} is damaged. Fix: remove it, to train again') from error


def is_finite(value: object) -> bool:
    """Whether a figure of a result file is a number that a float holds."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def read_result(run: Run, metrics: Sequence[str] = ()) -> dict[str, float]:
    """Read the finite metrics of a finished run, among which ``metrics`` must be."""
    found = read_facts(run)['metrics']
    finite = {key: float(value) for key, value in found.items() if is_finite(value)}
    for key in metrics:
        if key not in found:
            raise UserError(
                f'{run.result_file} has no metric {key}. Fix: some of {sorted(finite)} as '
                '`metrics`; nothing is trained again'
            )
        if key not in finite:
            raise UserError(
                f'{run.result_file}: {key} is {found[key]!r:.50}. Fix: a setting with which the '
                'training does not diverge, such as a lower learning rate'
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


def count_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fault_of(status: int) -> str:
    if status < 0:
        return f'killed by signal {-status}'
    return f'exit status {status}' if status else ''


class RunQueue:
    """Execute runs, ``jobs`` at a time; continue when one fails."""

    poll_seconds = 0.3

    def __init__(self, plan: SeedPlan, *, jobs: int = 1, retries: int = 1) -> None:
        if jobs < 1:
            raise UserError(f'`jobs` is {jobs}. Fix: --jobs 1 or more runs at a time')
        if retries < 0:
            raise UserError(f'`retries` is {retries}. Fix: --retries 0 or more')
        self.plan = plan
        self.jobs = jobs
        self.retries = retries
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
            if os.path.lexists(run.result_file):
                outcomes[index] = self._finish(run, '', 0.0)
            else:
                waiting.append(index)
        active: dict[int, subprocess.Popen] = {}
        begins: dict[int, float] = {}
        attempts = dict.fromkeys(waiting, 0)
        try:
            while waiting or active:
                while waiting and len(active) < self.jobs:
                    index = waiting.pop(0)
                    attempts[index] += 1
                    begins.setdefault(index, time.monotonic())
                    active[index] = self._start(runs[index])
                time.sleep(self.poll_seconds)
                for index, process in list(active.items()):
                    run = runs[index]
                    status = process.poll()
                    if status is None:
                        self.on_progress(run, parse_progress(read_tail(run.folder / LOG_NAME)))
                        continue
                    del active[index]
                    fault = _fault_of(status) or f'no {run.result_file.name} was written'
                    # The result is written last, so it counts however its command went on to end.
                    if run.result_file.is_file():
                        fault = ''
                    elif attempts[index] <= self.retries:
                        self.on_again(run, fault)
                        waiting.append(index)
                        continue
                    elif attempts[index] > 1:
                        fault += f' (started {attempts[index]} times)'
                    outcomes[index] = self._finish(run, fault, time.monotonic() - begins[index])
        finally:
            for process in active.values():
                end_process(process)
        return [outcomes[index] for index in range(len(runs))]

    def _start(self, run: Run) -> subprocess.Popen:
        command = build_command(run)
        run.folder.mkdir(parents=True, exist_ok=True)
        self.on_start(run)
        log = run.folder / LOG_NAME
        refuse_link(log)
        with open(log, 'ab') as file:
            file.write(f'\n$ {shlex.join(command)}\n'.encode())
        # Threads decide the last bits of sums; what the user has set stays.
        threads = os.environ.get('OMP_NUM_THREADS', str(max(1, count_cores() // self.jobs)))
        settings = {'OMP_NUM_THREADS': threads, 'MKL_NUM_THREADS': threads, **os.environ}
        return start_process(command, log, env={**settings, 'PYTHONUNBUFFERED': '1'})

    def _finish(self, run: Run, fault: str, seconds: float) -> Outcome:
        metrics = None
        error = fault
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
