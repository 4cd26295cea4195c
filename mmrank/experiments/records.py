"""Records of trainings, CSV files with a row for each evaluation: their one reader and writer."""

import csv
import io
import json
import math
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from mmrank.errors import UserError
from mmrank.files import read_text, write_csv_atomically

#: Stages of a row: a trial of settings, a training that counts, and a validation on the way of one.
TUNE = 'tune'
FINAL = 'final'
CURVE = 'curve'
#: ``stage`` (by default final), ``seed`` (or fold), ``step`` (iterations), ``seconds`` (of CPU),
#: ``hash`` (of the config and all options), ``settings`` (JSON). All other columns are metrics, but
#: for ``result`` (JSON).
FACTS = ('stage', 'method', 'seed', 'step', 'commit', 'seconds', 'hash', 'settings')
_WHOLE = ('seed', 'step')
_JSON = ('settings', 'result')
_TEXTS = ('stage', 'method', 'commit', 'hash')
_NEEDED = ('method', 'seed', 'settings')
#: Figures by method, metric and seed.
Values = Mapping[str, Mapping[str, Mapping[int, float]]]
#: Seconds to wait for a process that writes to the same record, which takes a moment.
_PATIENCE = 60.0
_AGAIN = 'Fix: remove the line; what is missing is trained again'


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """All rows of a record, as text; a figure that was not measured is empty.

    Raises:
        UserError: The file cannot be read, a line is torn or there twice, or a figure is not
            finite.
    """
    return _read(Path(path))[1]


def past_rows(path: str | Path, fields: Iterable[str] | None = None) -> list[dict[str, str]]:
    """Rows of a record to go on with, which has these columns in any order; none without a file."""
    if not Path(path).exists():
        return []
    found, rows = _read(Path(path))
    if fields is not None and {*found} != (wanted := {*fields}):
        raise UserError(
            f'record {path} has other columns: it lacks {sorted(wanted - {*found})} and has '
            f'{sorted({*found} - wanted)} more. Fix: the metrics of before, or another folder'
        )
    return rows


def read_final_rows(path: str | Path) -> list[dict[str, str]]:
    """Rows of a record without the rows of the tuning and of curves."""
    return [row for row in read_rows(path) if row.get('stage', FINAL) == FINAL]


def read_curve_rows(path: str | Path) -> list[dict[str, str]]:
    """The validations of a record, or else its final rows, which may be of several steps."""
    rows = [row for row in read_rows(path) if row.get('stage') == CURVE]
    return rows or read_final_rows(path)


def values_of(
    rows: Iterable[Mapping[str, str]], metric: str, scale: float = 1.0
) -> dict[str, dict[str, float]]:
    """Values of a metric by method and seed."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row['method'], {})[row['seed']] = scale * float(row[metric])
    return found


def read_values(path: str | os.PathLike, metrics: Sequence[str] = (), scale: float = 1.0) -> Values:
    """Read the final runs of a record."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in read_final_rows(path):
        if 'seed' not in row:
            raise UserError(f"{path} has no column 'seed'. Fix: name a record of several seeds")
        own = found.setdefault(row['method'], {})
        for metric in row.keys() - {*FACTS}:
            if row[metric]:
                own.setdefault(metric, {})[int(row['seed'])] = scale * float(row[metric])
    known = sorted({metric for own in found.values() for metric in own})
    metrics = list(metrics) or known
    missing = [metric for metric in metrics if metric not in known]
    if missing or not known:
        what = f'{path} has no final run with {", ".join(missing) or "a metric"}'
        raise UserError(what, f'pass some of: {", ".join(known) or "none there"}')
    return {
        method: {metric: own.get(metric, {}) for metric in metrics} for method, own in found.items()
    }


def by_setting(values: Values, metric: str) -> dict[str, dict[float, list[float]]]:
    """Values of a metric by method and setting, of methods named ``<method>-<value>``."""
    found: dict[str, dict[float, list[float]]] = {}
    for name, own in values.items():
        parts = re.fullmatch(r'(.+?)[-_](\d*\.?\d+(?:e-?\d+)?)', name)
        if parts is None:
            raise UserError(
                f'the method {name!r} has no value. Fix: <method>-<value>, such as soprc-0.25'
            )
        found.setdefault(parts[1], {})[float(parts[2])] = list(own[metric].values())
    return found


def append_rows(path: Path, rows: Sequence[Mapping], fields: Iterable[str]) -> None:
    """Add rows to a record, which is made if need be, by its columns: all of them, or none.

    Keys other than ``fields`` are left out. A record that is there keeps its order of columns.

    Raises:
        UserError: As :func:`read_rows`, also of the new rows; or the record has other columns.
    """
    fields = [*fields]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_name(f'.{path.name}.lock'), timeout=_PATIENCE):
            past = past_rows(path, fields)
            write_rows(path, [*past, *rows], [*past[0]] if past else fields)
    except Timeout:
        what = f'record {path} is locked by another process for {_PATIENCE:.0f} s'
        raise UserError(what, 'end that process, or write to another folder') from None


def write_rows(path: Path, rows: Sequence[Mapping], fields: Iterable[str]) -> Path:
    """Write a record whole, in place of an older one; see :func:`append_rows`."""
    fields = [*fields]
    texts = [{name: str(row[name]) for name in fields} for row in rows]
    _check(path, texts, range(2, len(texts) + 2))
    return write_csv_atomically([fields, *(row.values() for row in texts)], path)


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    text = read_text(path, 'record', 'name a runs.csv, or a file of tools/research/records')
    reader = csv.DictReader(io.StringIO(text, newline=''), strict=True)
    rows = []
    numbers = []
    try:
        fields = [*(reader.fieldnames or [])]
        if 'method' not in fields or len({*fields}) < len(fields):
            what = f'{path} is not a record: its first line has the columns {fields!r:.200}'
            raise UserError(what, 'columns with names of their own, one of them "method"')
        for row in reader:
            if None in row or None in row.values():
                raise csv.Error(f'it has not {len(fields)} values')
            rows.append(row)
            numbers.append(reader.line_num)
        if not text.endswith('\n'):
            raise csv.Error('it has no end, so that its last number may lack digits')
    except csv.Error as error:
        raise UserError(
            f'record {path}, line {reader.reader.line_num} is torn or glued: {error}. {_AGAIN}'
        ) from error
    _check(path, rows, numbers)
    return fields, rows


def _check(path: Path, rows: Iterable[Mapping[str, str]], numbers: Iterable[int]) -> None:
    """Refuse a value that does not fit its column, and a row that is there twice."""
    seen: dict[tuple, int] = {}
    for number, row in zip(numbers, rows):
        where = f'record {path}, line {number}'
        for name, value in row.items():
            if fault := _fault(name, value):
                what = f'{where}: {name}={value!r:.100} of {row["method"]!r} {fault}. {_AGAIN}'
                raise UserError(f'{what}, or take the method out of the plan')
        stage = row.get('stage') or FINAL
        key = (stage, *(row.get(name) for name in ('method', 'seed', 'step')))
        if stage == TUNE:  # of which a seed has several
            key += (row.get('hash'), row.get('settings'))
        if key in seen:
            raise UserError(
                f'{where} has the method {row["method"]!r}, seed {row.get("seed")}, step '
                f'{row.get("step")} a second time, after line {seen[key]}. Fix: remove one of them'
            )
        seen[key] = number


def _fault(name: str, value: str) -> str:
    """What is wrong with a value; empty for a good one."""
    if not value:
        return 'is empty' if name in _NEEDED else ''
    if value != value.strip():
        return 'has blanks at an end'
    if name == 'stage' and value not in (TUNE, FINAL, CURVE):
        return f'is none of {TUNE}, {FINAL} and {CURVE}'
    if name in _TEXTS:
        return ''
    try:
        if name in _JSON:
            return '' if isinstance(json.loads(value), dict) else 'is not a JSON object'
        number = int(value) if name in _WHOLE else float(value)
        if name in _WHOLE and str(number) != value:
            return f'is not written as {number}'
    except ValueError:
        return 'is not JSON' if name in _JSON else 'is not a number'
    return '' if math.isfinite(number) else 'is not finite'


def round_figure(value: object) -> object:
    """A figure as JSON and records hold it, to four digits; what is no fraction as it is."""
    return float(f'{value:.4g}') if isinstance(value, float | np.floating) else value


def current_commit() -> str:
    """The commit of this code; empty outside a repository."""
    command = ('git', '-C', str(Path(__file__).parent), 'rev-parse', '--short=8', 'HEAD')
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
