"""Reads lists of interactions, one a line."""

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from numbers import Real
from pathlib import Path

import numpy as np

from mmrank.checks import one_of
from mmrank.datasets.interactions.interactions import DUPLICATES, Interactions
from mmrank.errors import UserError

#: Characters of the longest line: a packed file of a few megabytes can hold one that fills the
#: memory.
LONGEST_LINE = 1 << 24
_COLUMNS = ('user', 'item', 'rating', 'timestamp')
_HEADER_NAMES = {'rating': 'rating', 'timestamp': 'timestamp'}
_HEADER_NAMES |= dict.fromkeys(('user', 'user_id', 'userid'), 'user')
_HEADER_NAMES |= dict.fromkeys(('item', 'item_id', 'itemid', 'movie_id', 'movieid'), 'item')


def read_csv(
    path: str | Path,
    min_rating: float | None = None,
    separator: str = ',',
    vocabulary: Interactions | None = None,
    duplicates: str = 'error',
) -> Interactions:
    """Read ``user,item[,rating][,timestamp]``, a header line or none.

    Entities are numbered as they first occur in a pair that is kept. One line and 8 bytes a pair
    are held while reading. Blanks around a field do not count: ``1, 2`` is ``1,2``.
    Options are checked before the file is read.

    Args:
        path: The file, also ``.gz``.
        min_rating: Keep interactions with at least this rating; MovieLens is used with 4. The
            smallest rating of the file keeps all. None: the file has no ratings, or the same one in
            all lines.
        separator: A comma, a tab, or ``'::'`` as in MovieLens.
        vocabulary: Number the entities as here, the training set. Pairs of others are left out and
            counted.
        duplicates: See :meth:`Interactions.of_pairs`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: On an option that makes no sense; on a line that cannot be read, naming it; if
            there is no rating to go by, or ratings and no ``min_rating``; if no pair is left.
    """
    check_options(min_rating, separator, duplicates)
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    if vocabulary is not None:
        users = {name: i for i, name in enumerate(vocabulary.row_names)}
        items = {name: i for i, name in enumerate(vocabulary.col_names)}
    rows = array('i')
    cols = array('i')
    unknown = 0
    for user, item in _pairs(path, min_rating, separator):
        if vocabulary is None:
            users.setdefault(user, len(users))
            items.setdefault(item, len(items))
        elif user not in users or item not in items:
            unknown += 1
            continue
        rows.append(users[user])
        cols.append(items[item])
    if not rows:
        raise ValueError(
            f'{path} has no interaction'
            + (f' with a rating >= {min_rating}' if min_rating else '')
            + (' of known entities' if vocabulary else '')
        )
    names = list(users), list(items)
    try:
        return Interactions.of_pairs(
            np.asarray(rows), np.asarray(cols), *names, duplicates, num_unknown=unknown
        )
    except ValueError as error:
        raise ValueError(f'{path}: {error}') from None


def check_options(min_rating: float | None, separator: str, duplicates: str = 'error') -> None:
    """Raise a ``ValueError`` on options that make no sense, before a long file is read."""
    one_of('duplicates', duplicates, DUPLICATES)
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"separator={separator!r} must be text, like ',', '::' or a tab")
    if set(separator) & set('"\r\n\0'):
        raise ValueError(
            f"separator={separator!r} holds a quote or a line break; use ',', '::' or a tab"
        )
    if min_rating is not None and not (isinstance(min_rating, Real) and math.isfinite(min_rating)):
        raise ValueError(
            f'min_rating={min_rating!r} must be a finite number, or None for all lines'
        )


def split_fields(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Yield the fields of lines with their ends; blanks around them may be left.

    ``separator`` is one character, outside of quotes, or several.
    """
    if len(separator) > 1:
        return (line.rstrip('\r\n').split(separator) for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=separator != ' ')


def header_columns(first: list[str]) -> list[str | None] | None:
    """``user``, ``item``, ``rating``, ``timestamp`` or None of each field of the first line.

    None if the line is not a header.
    """
    named = [_HEADER_NAMES.get(x.strip().lower()) for x in first]
    return named if {'user', 'item'} <= set(named) else None


def text_lines(path: str | Path) -> Iterator[str]:
    """Read a file in UTF-8 line by line.

    Lines keep their ends. The file is unpacked if its name ends in ``.gz``.
    """
    number = 0
    try:
        with _opened(Path(path)) as file:
            lines = iter(partial(file.readline, LONGEST_LINE), '')
            for number, line in enumerate(lines, 1):
                if len(line) == LONGEST_LINE and line[-1] not in '\r\n':
                    raise UserError(
                        f'{path}, line {number} has more than {LONGEST_LINE:,} characters. Fix: '
                        'write one entry a line, or unpack the file again'
                    )
                yield line
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        # A block is decoded when no whole line is left of those before.
        number += 1 + error.object[: error.start].count(b'\n')
        raise UserError(
            f'{path}, line {number} is not UTF-8 text: it holds the byte 0x{byte:02x}. Fix: save '
            'the file as UTF-8, as by `iconv -f latin1 -t utf-8`'
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f'{path} is not a whole gzip file: {error}, after line {number}. Fix: fetch it again, '
            "or leave '.gz' out of its name if it is not packed"
        ) from error


def _opened(path: Path):
    if '\0' in str(path):
        raise ValueError(f'the file name {str(path)!r} holds a null character')
    # A byte-order mark, as spreadsheets write it, is not part of a name.
    if path.suffix == '.gz':
        return gzip.open(path, 'rt', encoding='utf-8-sig', newline='')
    return path.open(encoding='utf-8-sig', newline='')


def _pairs(path: str | Path, min_rating: float | None, separator: str) -> Iterator[tuple[str, str]]:
    """User and item of each line to keep."""
    lines = _named_errors(split_fields(text_lines(path), separator), path)
    first = next(lines, None)
    if first is None:
        raise UserError(f'{path} is empty. Fix: pass a file with a user and an item a line')
    header = header_columns(first)
    columns = header or list(_COLUMNS[: len(first)])
    if len(columns) != len(first) or len(columns) < 2:
        raise UserError(
            f'{path}, line 1: expected user{separator}item optionally followed by a rating and a '
            f'timestamp, got {separator.join(first)!r:.80}. Fix: name the columns in the first '
            'line, or set the separator that the file has'
        )
    if min_rating is not None and 'rating' not in columns:
        raise ValueError(
            f'min_rating={min_rating}, but {path} has no rating: its columns '
            f'are {columns}; remove min_rating'
        )
    user = columns.index('user')
    item = columns.index('item')
    rating = columns.index('rating') if 'rating' in columns else None
    only_rating = None
    for number, fields in enumerate(lines if header else chain([first], lines), 1 + bool(header)):
        if len(fields) != len(columns):
            if not any(map(str.strip, fields)):
                continue
            raise UserError(
                f'{path}, line {number}: expected {len(columns)} fields '
                f'({separator.join(x or "..." for x in columns)}), got '
                f'{separator.join(fields)!r:.80}. Fix: correct the line; the first line decides '
                'the number of fields'
            )
        if min_rating is not None:
            if _number(fields[rating], f'{path}, line {number}') < min_rating:
                continue
        elif rating is not None:
            given = fields[rating].strip()
            only_rating = only_rating or given
            if given != only_rating:
                raise _ambiguous(path, rating, only_rating, given)
        pair = fields[user].strip(), fields[item].strip()
        if '' in pair:
            raise ValueError(f'{path}, line {number}: a user or item is empty; remove the line')
        yield pair


def _named_errors(rows: Iterator[list[str]], path: str | Path) -> Iterator[list[str]]:
    """The rows; errors of the ``csv`` module name the file and the line."""
    try:
        yield from rows
    except csv.Error as error:
        raise UserError(
            f'{path}, line {rows.line_num}: {error}. Fix: correct the line; a '
            'quote that is opened and not closed takes in the lines after it'
        ) from error


def _ambiguous(path: str | Path, rating: int, one: str, other: str) -> UserError:
    """Error for ratings of which nobody said which are good."""
    return UserError(
        f'{path}: column {rating + 1} holds ratings, such as {one} and {other}, and min_rating is '
        'not set: a bad rating would count as a positive pair. Fix: min_rating=4 keeps the lines '
        'rated 4 or more, and the smallest rating keeps all. If the column is something else, name '
        'the columns in a first line, as in user,item,timestamp'
    )


def _number(rating: str, where: str) -> float:
    try:
        value = float(rating)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise ValueError(f'{where}: rating {rating!r:.80} is not a number')
    return value
