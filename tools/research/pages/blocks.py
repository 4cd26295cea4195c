"""The comments of a page between which a table is written."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mmrank.experiments.records import read_rows

RECORDS = Path(__file__).resolve().parents[1] / 'records'
COMMENT = re.compile(
    r'^(<!-- (record|overview|sets)(?:: (.*?))? -->\n).*?(^<!-- end of \2 -->)',
    re.DOTALL | re.MULTILINE,
)
PICTURES = ('boxes', 'curves', 'forest')


class Block(NamedTuple):
    """The comment that begins a table."""

    words: str
    page: Path

    @property
    def folders(self) -> list[Path]:
        """The folders of the records of several sets, where they are folders; more by ``+``."""
        return [RECORDS / name for name in shlex.split(self.words)[0].split('+')]

    @property
    def record(self) -> Path:
        return self.folders[0].with_suffix('.csv')

    @property
    def records(self) -> list[Path]:
        """The record, or the records of the folders."""
        if not self.folders[0].is_dir():
            return [self.record]
        return sorted(path for folder in self.folders for path in folder.glob('*.csv'))

    @property
    def metrics(self) -> list[str]:
        return [word for word in shlex.split(self.words)[1:] if '=' not in word]

    @property
    def options(self) -> dict[str, str]:
        """Options of the table, the pictures and the overview."""
        return dict(word.split('=', 1) for word in shlex.split(self.words) if '=' in word)

    @property
    def scale(self) -> float:
        """What the metrics are multiplied by."""
        return float(self.options.get('scale', 100))

    @property
    def table_options(self) -> dict[str, str]:
        """Options of :func:`read_record`."""
        apart = {*PICTURES, 'title', 'task', 'ours', 'peer', 'stock', 'differences'}
        return {key: value for key, value in self.options.items() if key not in apart}


def blocks_of(pages: Iterable[Path]) -> list[Block]:
    """The blocks of all pages."""
    return [
        Block(match[3], page)
        for page in pages
        for match in COMMENT.finditer(page.read_text(encoding='utf-8'))
        if match[2] != 'overview'
    ]


def cost_of_records() -> str:
    """Trainings and core-hours of all records, the tuning's as far as they were kept."""
    runs = 0
    seconds = 0.0
    for path in sorted(RECORDS.rglob('*.csv')):
        # The last step of a run has the time of all of them.
        ends = {
            tuple(row.get(key) for key in ('stage', 'method', 'seed', 'settings')): row
            for row in read_rows(path)
            if row.get('stage') != 'curve'
        }
        runs += len(ends)
        seconds += sum(float(row['seconds'] or 0) for row in ends.values())
    return f'{runs:,} trainings on record, {seconds / 3600:.1f} core-hours.'
