"""The models of a COCO table: what the command line names, their runs, and what a run leaves."""

import functools
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mmrank.apis.common.command_line import Entry, digest_run, find_checkpoint, split_entry
from mmrank.apis.common.processes import end_process, start_process
from mmrank.apis.seeds.runs import LOG_NAME, parse_progress, read_tail
from mmrank.errors import UserError
from mmrank.files import write_atomically

RECORD_NAME = 'run.json'
PREDICTIONS_NAME = 'predictions.bbox.json'
_POLL_SECONDS = 0.3
_TESTED = re.compile(r'Epoch\(test\)\s+\[\s*(\d+)/(\d+)\]')


@dataclass(frozen=True)
class RunRecord:
    """Measurements of a detector's test run, kept beside its predictions."""

    digest: str
    config: str
    checkpoint: str
    ann_file: str
    device: str
    batch_size: int
    timed_images: int
    images_per_second: float
    images_per_second_with_data: float
    memory_bytes: int | None
    memory_kind: str
    parameters: int


@dataclass(frozen=True)
class ModelResult:
    """A model with its COCO results file and, unless it is from elsewhere, its run's record."""

    name: str
    predictions: Path
    record: RunRecord | None = None


def write_record(record: RunRecord, folder: str | os.PathLike) -> Path:
    """Write a record atomically, as the last file of a run."""
    path = Path(folder) / RECORD_NAME
    write_atomically(json.dumps(asdict(record), indent=1).encode(), path)
    return path


def read_record(folder: str | os.PathLike) -> RunRecord | None:
    """Read the record of a folder; None where it has none, :class:`UserError` where it is bad."""
    path = Path(folder) / RECORD_NAME
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text('utf-8'))
        known = {field.name for field in fields(RunRecord)}
        return RunRecord(**{k: content[k] for k in content if k in known})
    except (TypeError, ValueError) as error:
        raise UserError(
            f'{path} is not a record of a test run ({error}). Fix: delete it to run the test again.'
        ) from error


def parse_entries(words: Sequence[str]) -> list[Entry]:
    """Read ``[NAME=]PATH`` and ``[NAME=]CONFIG[,CHECKPOINT]``."""
    entries = [_parse(word) for word in words]
    names = [entry.name for entry in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(
            f'the name {twice[0]!r} is used for {names.count(twice[0])} models. Fix: name each '
            'differently, NAME=PATH.'
        )
    return entries


def _parse(word: str) -> Entry:
    name, text, checkpoint = split_entry(word)
    path = Path(text)
    if not text or not path.exists():
        raise UserError(
            f'{word!r}: {text!r} does not exist. Fix: pass NAME=PATH of a *.bbox.json, of a folder '
            f'with one, or NAME=CONFIG.py,CHECKPOINT (paths start at {Path.cwd()}).'
        )
    if checkpoint is not None and path.suffix != '.py':
        raise UserError(
            f'{word!r} has a checkpoint but {text!r} is not a config. Fix: pass '
            'NAME=CONFIG.py,CHECKPOINT.'
        )
    checkpoint = find_checkpoint(word, checkpoint, '; leave it and the comma out to train first')
    stem = path.name if path.is_dir() else path.stem.removesuffix('.bbox')
    return Entry(name or stem, path, checkpoint)


def read_result(entry: Entry) -> ModelResult:
    """Find the predictions of a file or folder."""
    if entry.path.is_file():
        return ModelResult(entry.name, entry.path)
    record = read_record(entry.path)
    own = entry.path / PREDICTIONS_NAME
    if own.is_file():
        return ModelResult(entry.name, own, record)
    files = sorted(entry.path.glob('*.bbox.json'))
    if len(files) != 1:
        found = ', '.join(f.name for f in files) or 'none'
        raise UserError(
            f'{entry.name}: the folder {entry.path} must have one *.bbox.json and has {found}. '
            'Fix: pass the file itself.'
        )
    return ModelResult(entry.name, files[0], record)


def find_annotations(results: Sequence[ModelResult], given: str | None) -> Path:
    """Find the annotation file of all models: ``given``, or the file of their runs."""
    files = {r.name: Path(r.record.ann_file) for r in results if r.record}
    if given is not None:
        files = {'--ann-file': Path(given), **files}
    if not files:
        raise UserError(
            'the annotation file is unknown: the predictions do not name it. Fix: pass --ann-file.'
        )
    # Many models may share a file, which is read once.
    digest_of = functools.cache(lambda path: hashlib.sha256(path.read_bytes()).hexdigest())
    digests: dict[str, str] = {}
    for name, path in files.items():
        if path.is_file():
            digests[name] = digest_of(path.resolve())
        elif name == '--ann-file' or given is None:
            raise UserError(
                f'{name}: the annotation file {path} does not exist. Fix: pass --ann-file, the '
                'file of the test split.'
            )
    first = next(iter(digests))
    for name, digest in digests.items():
        if digest != digests[first]:
            raise UserError(
                f'{first} and {name} have different annotation files, {files[first]} and '
                f'{files[name]}. Fix: test all models on one split; figures of two cannot be '
                'compared.'
            )
    return files[first]


def plan_run(
    entry: Entry, config: Mapping, device: str, out_dir: str | os.PathLike
) -> tuple[Path, str]:
    """Return the folder of a run and the digest of all that its figures depend on."""
    digest = digest_run(config, entry.checkpoint, device)
    return Path(out_dir) / 'runs' / f'{entry.file_name}-{digest[:8]}', digest


def find_finished(name: str, folder: Path, digest: str) -> ModelResult | None:
    """Return the result of an earlier run, if there is one."""
    record = read_record(folder)
    predictions = folder / PREDICTIONS_NAME
    if record is None or record.digest != digest or not predictions.is_file():
        return None
    return ModelResult(name, predictions, record)


def _describe_progress(log: str) -> str:
    """Return the last progress of training or testing in a log."""
    if tested := _TESTED.findall(log):
        return 'testing, batch {} of {}'.format(*tested[-1])
    return parse_progress(log)


def _run_command(
    command: Sequence[str], folder: Path, on_progress: Callable[[str], None] = lambda text: None
) -> None:
    """Run a command with its output in ``folder/output.log``, and end it when interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_NAME
    process = start_process(command, log, env={**os.environ, 'PYTHONUNBUFFERED': '1'})
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            on_progress(_describe_progress(read_tail(log)))
    finally:
        end_process(process)
    if process.returncode:
        tail = '\n'.join(read_tail(log).splitlines()[-12:])
        raise UserError(
            f'{Path(command[1]).name} ended with status {process.returncode}. Fix: see the end of '
            f'{log}, and run the same command again.\n{tail}'
        )


def measure(
    script: Path,
    entry: Entry,
    folder: Path,
    digest: str,
    options: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> ModelResult:
    """Train a config if it has no checkpoint, and test it."""
    command = [sys.executable, str(script), str(entry.path)]
    command += [str(entry.checkpoint)] if entry.checkpoint else []
    try:
        _run_command(
            [*command, '--out', str(folder), '--digest', digest, *options], folder, on_progress
        )
    except UserError as error:
        raise UserError(f'{entry.name}: {error}') from error
    result = find_finished(entry.name, folder, digest)
    if result is None:
        raise UserError(
            f'{entry.name}: the run left no result in {folder}. Fix: see {folder / LOG_NAME}.'
        )
    return result
