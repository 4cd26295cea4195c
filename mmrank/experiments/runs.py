"""Run trainings side by side, resumably, and read their results."""

import datetime
import json
import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from mmrank.errors import UserError
from mmrank.experiments.plan import Run
from mmrank.files import read_text, refuse_link
from mmrank.runners.identity import read_settings
from mmrank.runners.processes import end_process, start_process

POLL_SECONDS = 0.3
#: Trains, tests and writes the result file of a run.
SCRIPT = ('-m', 'mmrank.cli.train_and_test')
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


def _read_result(run: Run, metrics: Sequence[str] = ()) -> dict[str, float]:
    """Read the finite metrics of a finished run, among which ``metrics`` must be."""
    found = read_facts(run)['metrics']
    finite = {key: float(value) for key, value in found.items() if is_finite(value)}
    for key in metrics:
        if key not in found:
            what = f'{run.result_file} has no metric {key}'
            fix = f'some of {sorted(finite)} as `metrics`; nothing is trained again'
            raise UserError(what, fix)
        if key not in finite:
            raise UserError(
                f'{run.result_file}: {key} is {found[key]!r:.50}. Fix: a setting with which the '
                'training does not diverge, such as a lower learning rate'
            )
    return finite


def build_command(run: Run) -> list[str]:
    """The command of a run, after ``python``."""
    command = [*SCRIPT, run.config, '--work-dir', str(run.folder)]
    command += ['--split', run.split, '--cfg-options', f'randomness.seed={run.seed}']
    return command + [f'{key}={value}' for key, value in run.options.items()]


def _parse_progress(log: str) -> tuple[str, float | None]:
    """The last progress in mmengine's log in short form, and the seconds that are left by it."""
    if epochs := _EPOCH.findall(log):
        epoch, step, steps, eta = epochs[-1]
        return f'epoch {epoch} iteration {step}/{steps}', _seconds_of(eta)
    if iterations := _ITER.findall(log):
        step, steps, eta = iterations[-1]
        return f'iteration {step}/{steps}', _seconds_of(eta)
    return 'starting', None


def _seconds_of(eta: str) -> float:
    """Seconds of ``1 day, 2:03:04``."""
    days, _, clock = eta.rpartition(', ')
    hours, minutes, seconds = map(int, clock.split(':'))
    return 86400.0 * int(days.split()[0] if days else 0) + 3600 * hours + 60 * minutes + seconds


def _time_left(
    took: Sequence[float], active: Sequence[tuple[float, float | None]], more: int
) -> str:
    """Words for the seconds that are left, by what the ended trainings took and ``more`` to come.

    ``active``: seconds since the start, and seconds left where they are known, of those that run.
    """
    known = [(since, left) for since, left in active if left is not None]
    whole = [*took, *(since + left for since, left in known)]
    if not whole:
        return 'time left: known in a moment'
    mean = sum(whole) / len(whole)
    left = sum(max(mean - since, 0.0) if rest is None else rest for since, rest in active)
    seconds = (left + more * mean) / max(len(active), 1)
    return f'{datetime.timedelta(seconds=round(seconds))} left'


def _read_tail(path: Path, size: int = 8192) -> str:
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


def work_off(
    console: Console,
    runs: Sequence[Run],
    metrics: Sequence[str] = (),
    *,
    jobs: int = 1,
    retries: int = 1,
) -> list[Outcome]:
    """Run all that is not finished, ``jobs`` at a time, and say how each ends.

    A run that dies is started again, ``retries`` times; the others go on when one fails. A terminal
    shows a bar with the time left. Each result must have the ``metrics``. Returns the outcomes in
    the order of ``runs``.
    """
    if jobs < 1:
        raise UserError(f'`jobs` is {jobs}. Fix: --jobs 1 or more runs at a time')
    if retries < 0:
        raise UserError(f'`retries` is {retries}. Fix: --retries 0 or more')
    outcomes: dict[Path, Outcome] = {}

    def finish(run: Run, fault: str, seconds: float) -> None:
        """Keep how a run ended, by its result, or by its fault and the end of its log."""
        if fault:
            lines = _read_tail(run.log).splitlines()[-15:]
            outcome = Outcome(run, None, seconds, '\n'.join([f'{fault}; {run.log}:', *lines]))
        else:
            try:
                outcome = Outcome(run, _read_result(run, metrics), seconds)
            except UserError as problem:
                outcome = Outcome(run, None, seconds, str(problem))
        outcomes[run.folder] = outcome
        say(console, _describe(outcome, metrics))
        progress.update(bar, completed=len(outcomes))

    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn('trainings, {task.description}'),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    bar = progress.add_task('', total=len(runs))
    waiting = []
    for run in runs:
        if os.path.lexists(run.result_file):
            finish(run, '', 0.0)
        else:
            waiting.append(run)
    active: list[tuple[Run, BaseProcess]] = []
    begins: dict[Path, float] = {}
    attempts: Counter = Counter()
    try:
        with progress:
            while waiting or active:
                while waiting and len(active) < jobs:
                    run = waiting.pop(0)
                    attempts[run.folder] += 1
                    begins.setdefault(run.folder, time.monotonic())
                    say(console, f'started {run.label}: {run.folder}')
                    active.append((run, _start(run, jobs)))
                time.sleep(POLL_SECONDS)
                states = [_parse_progress(_read_tail(run.log)) for run, _ in active]
                since = [time.monotonic() - begins[run.folder] for run, _ in active]
                took = [x.seconds for x in outcomes.values() if x.seconds and not x.error]
                left = _time_left(took, [*zip(since, (x for _, x in states))], len(waiting))
                texts = [f'{run.label}: {text}' for (run, _), (text, _) in zip(active, states)]
                progress.update(bar, description=escape('; '.join([left, *texts])))
                for run, process in [x for x in active if x[1].exitcode is not None]:
                    active.remove((run, process))
                    status = process.exitcode or 0
                    fault = f'no {run.result_file.name} is there'
                    if status:
                        fault = (
                            f'killed by signal {-status}' if status < 0 else f'exit status {status}'
                        )
                    # The result is written last, so it counts however its command went on to end.
                    if run.result_file.is_file():
                        fault = ''
                    elif attempts[run.folder] <= retries:
                        say(console, f'{run.label} died ({fault}); it is started once more')
                        waiting.append(run)
                        continue
                    elif attempts[run.folder] > 1:
                        fault += f' (started {attempts[run.folder]} times)'
                    finish(run, fault, time.monotonic() - begins[run.folder])
    finally:
        for _, process in active:
            end_process(process)
    return [outcomes[run.folder] for run in runs]


def _start(run: Run, jobs: int) -> BaseProcess:
    command = build_command(run)
    run.folder.mkdir(parents=True, exist_ok=True)
    refuse_link(run.log)
    with open(run.log, 'ab') as file:
        file.write(f'\n$ python {shlex.join(command)}\n'.encode())
    threads = max(1, count_cores() // jobs)
    # What takes a training of this config longest to import.
    package = read_settings(run.config).get('default_scope') or 'mmengine'
    parts = ('models', 'datasets', 'engine', 'evaluation', 'visualization')
    modules = [f'{name}.{part}' for name in dict.fromkeys((package, 'mmrank')) for part in parts]
    modules = [SCRIPT[-1], 'mmengine.runner', *modules]
    return start_process(command, run.log, threads, modules)


def _describe(outcome: Outcome, metrics: Sequence[str]) -> str:
    label = outcome.run.label
    if outcome.error:
        return f'failed {label}\n{outcome.error}'
    named = [x for x in metrics if x in outcome.metrics]
    shown = named or [x for x in outcome.metrics if x.endswith('mAP')] or [*outcome.metrics][:3]
    values = [f'{x} {outcome.metrics[x]:.4f}' for x in shown]
    took = f' in {outcome.seconds:.0f} s' if outcome.seconds else ''
    return f'done{took} {label}: {", ".join(values)}'


def say(console: Console, text: str) -> None:
    """Print a text as it is: no markup, no line break."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
