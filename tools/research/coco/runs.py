"""Run the configs of a COCO table, each in a process of its own."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mmrank.errors import UserError
from research.coco.entries import ModelResult
from research.common.model_entry import Entry
from research.common.run_record import PREDICTIONS_NAME, digest_run, read_record
from research.seeds.executors.local import end_process
from research.seeds.runs import LOG_NAME, parse_progress, read_tail

_POLL_SECONDS = 0.3
_TESTED = re.compile(r'Epoch\(test\)\s+\[\s*(\d+)/(\d+)\]')


def plan_run(
    entry: Entry, config: dict, device: str, out_dir: str | os.PathLike
) -> tuple[Path, str]:
    """Return the folder of a run and the digest that identifies it.

    A changed config, override, checkpoint or kind of device has a folder of its own.

    Args:
        entry: A config, with a checkpoint or without.
        config: Its content with overrides.
        device: ``'cuda'``, ``'cpu'``, ...
        out_dir: Folder of the table.

    Returns:
        The folder and the digest.
    """
    digest = digest_run(config, entry.checkpoint, device)
    folder = f'{entry.file_name}-{digest[:8]}'
    return Path(out_dir) / 'runs' / folder, digest


def find_finished(name: str, folder: Path, digest: str) -> ModelResult | None:
    """Return the result of an earlier run, if there is one."""
    record = read_record(folder)
    predictions = folder / PREDICTIONS_NAME
    if record is None or record.digest != digest or not predictions.is_file():
        return None
    return ModelResult(name, predictions, record)


def describe_progress(log: str) -> str:
    """Return the last progress of training or testing in a log."""
    tested = _TESTED.findall(log)
    if tested:
        done, total = tested[-1]
        return f'testing, batch {done} of {total}'
    return parse_progress(log)


def run_command(
    command: Sequence[str], folder: Path, on_progress: Callable[[str], None] = lambda text: None
) -> None:
    """Run a command with its output in a log, and end it when interrupted.

    Args:
        command: Words of the command.
        folder: Folder of the log, ``output.log``; made if needed.
        on_progress: Called now and then with what mmengine's log shows.

    Raises:
        UserError: If the command fails; the text has the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_NAME
    with open(log, 'ab') as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, 'PYTHONUNBUFFERED': '1'},
            start_new_session=True,  # an interrupt reaches us first
        )
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            on_progress(describe_progress(read_tail(log)))
    finally:
        end_process(process)
    if process.returncode:
        tail = '\n'.join(read_tail(log).splitlines()[-12:])
        raise UserError(
            f'{Path(command[1]).name} ended with status {process.returncode}. '
            f'Fix: see the end of {log}, and run the same command again.\n'
            f'{tail}'
        )


def measure(
    script: Path,
    entry: Entry,
    folder: Path,
    digest: str,
    *,
    cfg_options: Sequence[str] = (),
    warmup: int = 3,
    options: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> ModelResult:
    """Train a config if it has no checkpoint, and test it.

    Args:
        script: ``tools/benchmarks/measure_detector.py``.
        entry: The config.
        folder: Folder of the run, see :func:`plan_run`.
        digest: See :func:`plan_run`.
        cfg_options: ``key=value`` overrides.
        warmup: Batches that the speed leaves out.
        options: Other words of the script's command line.
        on_progress: See :func:`run_command`.

    Returns:
        The result.

    Raises:
        UserError: If the run fails.
    """
    command = [sys.executable, str(script), str(entry.path)]
    if entry.checkpoint:
        command.append(str(entry.checkpoint))
    command += ['--out', str(folder), '--digest', digest]
    command += ['--warmup', str(warmup)]
    command += options
    if cfg_options:
        command += ['--cfg-options', *cfg_options]
    try:
        run_command(command, folder, on_progress)
    except UserError as error:
        raise UserError(f'{entry.name}: {error}') from error
    result = find_finished(entry.name, folder, digest)
    if result is None:
        raise UserError(
            f'{entry.name}: the run left no result in {folder}. Fix: see {folder / LOG_NAME}.'
        )
    return result
