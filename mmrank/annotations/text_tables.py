"""Tables of text, one entry a line."""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mmrank.errors import UserError


def read_lines(path: str | Path) -> Iterator[str]:
    """Lines, with their ends, of UTF-8 text; a file is unpacked if its name ends in ``.gz``."""
    open_file = gzip.open if Path(path).suffix == '.gz' else open
    try:
        # A byte-order mark, as spreadsheets write it, is not part of a name.
        with open_file(path, 'rt', encoding='utf-8-sig', newline='') as file:
            yield from file
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(
            f'{path!s:.300} cannot be read: {error!s:.300}. Fix: check data_root and the name, '
            'fetch the file again if it is cut off, save it as UTF-8 text'
        ) from error


def read_rows(path: str | Path, separator: str = ',') -> Iterator[tuple[str, list[str]]]:
    """Place, ``file:line``, and fields of each line of a table that is not empty.

    ``separator`` is a comma, outside of quotes, or other text. Blanks around a field do not count.
    """
    lines = read_lines(path)
    if separator == ',':
        rows = csv.reader(lines, skipinitialspace=True, strict=True)
    else:
        rows = (line.split(separator) for line in lines)
    name = str(path)
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            fields = list(map(str.strip, row))
            if any(fields):
                yield f'{name}:{number}', fields
    except csv.Error as error:
        what = f'{path}:{number + 1}: {error}'
        fix = 'correct the line; a quote that is opened and not closed takes in the lines after it'
        raise UserError(what, fix) from error


def even_rows(
    rows: Iterable[tuple[str, list[str]]], columns: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Place and fields of each row; refuses a row with another number of fields."""
    for place, fields in rows:
        if len(fields) != len(columns):
            raise UserError(
                f'{place}: expected {len(columns)} fields ({", ".join(columns)!s:.200}), got '
                f'{fields!s:.80}. Fix: correct the line; the first line names the fields'
            )
        yield place, fields


def read_table(
    path: str | Path, required: Sequence[str], separator: str = ','
) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """Column names, from the first line, and place and cells of each other line."""
    rows = read_rows(path, separator)
    _, columns = next(rows, (path, []))
    missing = [name for name in required if name not in columns]
    if missing:
        what = f'{path} has no column {missing[0]!r:.80}, only {columns!s:.200}'
        raise UserError(what, 'correct the first line, or the name of the column in the config')
    if len(set(columns)) < len(columns):
        raise UserError(f'{path} has a column twice: {columns!s:.200}', 'rename one of them')
    return columns, (
        (place, dict(zip(columns, fields))) for place, fields in even_rows(rows, columns)
    )
