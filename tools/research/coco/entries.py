"""The models of a COCO table: what the command line names, and where it is."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mmrank.errors import UserError
from research.common.model_entry import Entry, find_checkpoint, split_entry
from research.common.run_record import PREDICTIONS_NAME, RunRecord, read_record


@dataclass(frozen=True)
class ModelResult:
    """One model whose predictions are there.

    Attributes:
        name: Name in the table.
        predictions: COCO results file.
        record: What its run measured; None for a file from elsewhere.
    """

    name: str
    predictions: Path
    record: RunRecord | None = None


def parse_entries(words: Sequence[str]) -> list[Entry]:
    """Read ``[NAME=]PATH`` and ``[NAME=]CONFIG[,CHECKPOINT]``.

    Args:
        words: From the command line.

    Returns:
        The models, in the same order.

    Raises:
        UserError: If a path does not exist, or two models have one name.
    """
    entries = [_parse(word) for word in words]
    names = [entry.name for entry in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(
            f'the name {twice[0]!r} is used for {names.count(twice[0])} '
            'models. Fix: name each differently, NAME=PATH.'
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
            f'{word!r} has a checkpoint but {text!r} is not a config. Fix: '
            'pass NAME=CONFIG.py,CHECKPOINT.'
        )
    checkpoint = find_checkpoint(word, checkpoint, '; leave it and the comma out to train first')
    stem = path.name if path.is_dir() else path.stem.removesuffix('.bbox')
    return Entry(name or stem, path, checkpoint)


def read_result(entry: Entry) -> ModelResult:
    """Find the predictions of a file or folder.

    Args:
        entry: A model that need not be run.

    Returns:
        Where they are.

    Raises:
        UserError: If a folder has no prediction file, or several and none
            that ``coco_table.py`` wrote.
    """
    if entry.path.is_file():
        return ModelResult(entry.name, entry.path)
    try:
        record = read_record(entry.path)
    except ValueError as error:
        raise UserError(str(error)) from error
    own = entry.path / PREDICTIONS_NAME
    if own.is_file():
        return ModelResult(entry.name, own, record)
    files = sorted(entry.path.glob('*.bbox.json'))
    if len(files) != 1:
        found = ', '.join(f.name for f in files) or 'none'
        raise UserError(
            f'{entry.name}: the folder {entry.path} must have one *.bbox.json '
            f'and has {found}. Fix: pass the file itself.'
        )
    return ModelResult(entry.name, files[0], record)


def check_pair(results: Sequence[ModelResult], names: Sequence[str], image_dir: str | None) -> None:
    """Check that two models can be drawn side by side.

    Args:
        results: All models.
        names: Names of the two.
        image_dir: Folder of the images, if it was given.

    Raises:
        UserError: If a name is unknown or given twice, or neither model's
            run names the image folder.
    """
    records = {r.name: r.record for r in results}
    for name in names:
        if name not in records:
            raise UserError(
                f'--side-by-side {name!r} is not one of the models '
                f'{list(records)}. Fix: pass two of their names.'
            )
    if len(set(names)) < 2:
        raise UserError(f'--side-by-side has {names[0]!r} twice. Fix: pass two models.')
    if image_dir is None and not any(records[name] for name in names):
        raise UserError(
            'the image folder is unknown: prediction files do not name it. Fix: pass --image-dir.'
        )


def find_annotations(results: Sequence[ModelResult], given: str | None) -> Path:
    """Find the annotation file of all models, and check that it is one.

    Args:
        results: The models.
        given: The file that the command line names, if any.

    Returns:
        The file.

    Raises:
        UserError: If none is known, it does not exist, or models were
            tested on files of different content.
    """
    recorded = {r.name: Path(r.record.ann_file) for r in results if r.record}
    if given is None and not recorded:
        raise UserError(
            'the annotation file is unknown: the predictions do not name it. Fix: pass --ann-file.'
        )
    files = dict(recorded)
    if given is not None:
        files = {'--ann-file': Path(given), **files}
    digests: dict[str, str] = {}
    for name, path in files.items():
        if path.is_file():
            digests[name] = _digest(path.resolve(), path.stat().st_mtime_ns)
        elif name == '--ann-file' or given is None:
            raise UserError(
                f'{name}: the annotation file {path} does not exist. Fix: '
                'pass --ann-file, the file of the test split.'
            )
    first = next(iter(digests))
    for name, digest in digests.items():
        if digest != digests[first]:
            raise UserError(
                f'{first} and {name} have different annotation files, '
                f'{files[first]} and {files[name]}. Fix: test all models on '
                'one split; figures of two cannot be compared.'
            )
    return files[first]


@lru_cache
def _digest(path: Path, changed: int) -> str:
    """Digest of a file that many models may share."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
