"""Reads lists of interactions, one a line."""

import math
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from mmrank.annotations.text_tables import even_rows, read_rows
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.errors import UserError

_COLUMNS = ('user', 'item', 'rating', 'timestamp')
_HEADER_NAMES = dict.fromkeys(('user', 'user_id', 'userid'), 'user')
_HEADER_NAMES |= dict.fromkeys(('item', 'item_id', 'itemid', 'movie_id', 'movieid'), 'item')


def read_csv(
    path: str | Path,
    min_rating: float | None = None,
    separator: str = ',',
    vocabulary: Interactions | None = None,
) -> Interactions:
    """Read ``user,item[,rating][,timestamp]``, a header line or none.

    Entities are numbered as they first occur in a pair that is kept. Blanks around a field do not
    count: ``1, 2`` is ``1,2``. A pair that occurs several times counts once.

    Args:
        path: The file, also ``.gz``.
        min_rating: Keep interactions with at least this rating; MovieLens is used with 4. The
            smallest rating of the file keeps all. None: the file has no ratings, or the same one in
            all lines.
        separator: A comma, outside of quotes, or other text: a tab, or ``'::'`` as in MovieLens.
        vocabulary: Number the entities as here, the training set. Pairs of others are left out and
            counted.

    Raises:
        UserError: On a line that cannot be read, naming it; if there is no rating to go by, or
            ratings and no ``min_rating``; if no pair is left.
    """
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    if vocabulary is not None:
        users = {name: i for i, name in enumerate(vocabulary.row_names)}
        items = {name: i for i, name in enumerate(vocabulary.col_names)}
    rows = array('i')
    cols = array('i')
    unknown = 0
    _, columns, lines = table_of_interactions(path, separator)
    user_at = columns.index('user')
    item_at = columns.index('item')
    rated = columns.index('rating') if 'rating' in columns else None
    first_rating = None
    kept: dict[str, bool] = {}
    for place, fields in lines:
        rating = '' if rated is None else fields[rated]
        if min_rating is not None:
            if rating not in kept:
                kept[rating] = is_kept(rating, min_rating, place)
            if not kept[rating]:
                continue
        elif first_rating is None:
            first_rating = rating
        elif rating != first_rating:
            raise UserError(
                f'{place}: the file holds ratings, such as {first_rating:.20} and {rating:.20}, '
                'and min_rating is not set: a bad rating would count as a positive pair. Fix: '
                'min_rating=4 keeps the lines rated 4 or more, and the smallest rating keeps all; '
                'if the column is something else, name the columns in a first line, as in '
                'user,item,timestamp'
            )
        user = fields[user_at]
        item = fields[item_at]
        if not (user and item):
            raise UserError(f'{place}: a user or item is empty. Fix: remove the line')
        if vocabulary is None:
            rows.append(users.setdefault(user, len(users)))
            cols.append(items.setdefault(item, len(items)))
        elif user in users and item in items:
            rows.append(users[user])
            cols.append(items[item])
        else:
            unknown += 1
    if not rows:
        what = f'{path} has no interaction of known entities to keep, with min_rating={min_rating}'
        raise UserError(what, 'check the file and min_rating')
    return Interactions(rows, cols, list(users), list(items), num_unknown=unknown)


def table_of_interactions(
    path: str | Path, separator: str
) -> tuple[list[str] | None, list[str], Iterator[tuple[str, list[str]]]]:
    """Header, None if there is none, names of the columns, place and fields of each other line."""
    rows = read_rows(path, separator)
    place, first = next(rows, (f'{path}:1', []))
    columns = [_HEADER_NAMES.get(x.lower(), x.lower()) for x in first]
    header = first if {'user', 'item'} <= set(columns) else None
    if header is None:
        columns = list(_COLUMNS[: len(first)])
        rows = chain([(place, first)], rows)
    if not 2 <= len(first) == len(columns):
        raise UserError(
            f'{place}: expected user{separator}item optionally followed by a rating and a '
            f'timestamp, got {separator.join(first)!r:.80}. Fix: name the columns in the first '
            'line, or set the separator that the file has'
        )
    return header, columns, even_rows(rows, columns)


def is_kept(rating: str, min_rating: float, place: str) -> bool:
    """Whether a rating is at least ``min_rating``; a UserError if it is not a number."""
    try:
        value = float(rating)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        what = f'{place}: rating {rating!r:.80} is not a number, and min_rating={min_rating}'
        fix = 'correct the line, or remove min_rating where the file has no ratings'
        raise UserError(what, fix)
    return value >= min_rating
