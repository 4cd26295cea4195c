"""Records of trainings: the columns that are not metrics, and the commit."""

import csv
import subprocess
from collections.abc import Iterable
from pathlib import Path

#: ``stage`` (``tune``, ``final``, the default, or ``curve``, a validation on the way), ``seed`` (or
#: fold), ``step`` (iterations), ``seconds`` (of CPU), ``hash`` (of the config and all options),
#: ``settings`` (JSON).
FACTS = ('stage', 'method', 'seed', 'step', 'commit', 'seconds', 'hash', 'settings')


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """All rows of a record."""
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


def read_final_rows(path: str | Path) -> list[dict[str, str]]:
    """Rows of a record without those of the tuning and of curves."""
    return [row for row in read_rows(path) if row.get('stage', 'final') == 'final']


def read_curve_rows(path: str | Path) -> list[dict[str, str]]:
    """The validations of a record, or else its final rows, which may be of several steps."""
    rows = [row for row in read_rows(path) if row.get('stage') == 'curve']
    return rows or read_final_rows(path)


def append_rows(path: Path, rows: list[dict], fields: Iterable[str]) -> None:
    """Add rows to a record, of their ``fields``, the column names of a new one."""
    is_new = not path.exists()
    with open(path, 'a', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, [*fields], extrasaction='ignore', lineterminator='\n')
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def current_commit() -> str:
    """The commit of this code; empty outside a repository."""
    command = ('git', '-C', str(Path(__file__).parent), 'rev-parse', '--short=8', 'HEAD')
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
