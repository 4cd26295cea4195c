"""Files of positive pairs: lists of interactions, multi-label text, a split in two parts."""

import csv
import math
import re
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from mmrank.annotations.text_tables import even_rows, read_lines, read_rows
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.errors import UserError
from mmrank.files import whole_folder
from mmrank.settings import check_at_least, check_within

#: ``lines features labels``.
_HEADER = re.compile(r'\d{1,10} (\d{1,10}) \d{1,10}\s*')
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


def read_xmc(
    path: str | Path, vocabulary: Interactions | None = None, one_based: bool = False
) -> Interactions:
    """Read LIBSVM's multi-label form, ``label,label feature:value ...``.

    Left entities are the lines, named by their numbers, right ones the labels, whole numbers, in
    the order in which the lines first have them. The features of a line rise. The files of the
    extreme classification repository begin with a line ``lines features labels``, which is then
    checked. Lines without a label, which begin with a blank, have no positive pair and are left
    out.

    Args:
        path: The file, also ``.gz``.
        vocabulary: Number the labels, and count the features, as here: the training set. Pairs with
            other labels are left out and counted, and so are features beyond its last, which no
            weight was learnt for. The lines are new entities all the same.
        one_based: Features are numbered from 1, not 0.

    Raises:
        UserError: On a line that cannot be read, naming it, or if there is no pair.
    """
    labels = {} if vocabulary is None else {x: i for i, x in enumerate(vocabulary.col_names)}
    width = None if vocabulary is None else vocabulary.row_features.shape[1]
    rows = array('q')
    cols = array('q')
    names: list[str] = []
    features: list[np.ndarray] = []
    unknown = 0
    for number, line in enumerate(read_lines(path), 1):
        header = _HEADER.fullmatch(line) if number == 1 else None
        if header:
            width = width or int(header[1])
            continue
        try:
            own, found = _parse(line, int(one_based))
        except (ValueError, OverflowError) as error:
            raise UserError(
                f'{path}:{number}: {line!r:.80} cannot be read: {error}. Fix: write it as '
                '`label,label feature:value feature:value ...`, labels as whole numbers, features '
                f'from {int(one_based)} on, rising, values finite'
            ) from error
        if vocabulary is None:
            for label in own:
                labels.setdefault(label, len(labels))
        known = [labels[label] for label in own if label in labels]
        unknown += len(own) - len(known)
        if known:
            rows.extend([len(names)] * len(known))
            cols.extend(known)
            names.append(str(number))
            features.append(found)
    if not names:
        raise UserError(f'{path} has no line with a known label. Fix: check ann_file')
    starts = np.cumsum([0, *map(len, features)])
    indices, values = np.concatenate(features).T
    size = int(indices.max(initial=-1)) + 1
    width = size if width is None else width
    if vocabulary is None and size > width:
        what = f'{path} has feature {size - 1}, but its first line declares {width} features'
        raise UserError(what, 'if they count from 1, set one_based=True')
    entries = values.astype(np.float32), indices.astype(np.int32), starts.astype(np.int32)
    matrix = csr_array(entries, shape=(len(names), max(size, width)))
    matrix.resize((len(names), width))
    return Interactions(rows, cols, names, list(labels), matrix, unknown)


def _parse(line: str, first: int) -> tuple[list[str], np.ndarray]:
    """Labels and (k, 2) features and values of a line; none in a line that begins with a blank."""
    text, _, rest = line.partition('#')[0].partition(' ')
    labels = [str(int(label)) for label in text.split(',')] if text.strip() else []
    pairs = [pair.split(':') for pair in rest.split()]
    found = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    found[:, 0] -= first
    indices = found[:, 0]
    if (indices % 1).any() or (indices < 0).any() or (np.diff(indices) <= 0).any():
        raise ValueError('features must be whole numbers that rise')
    if not (np.abs(found) <= np.finfo(np.float32).max).all():
        raise ValueError('a value is not finite as float32')
    return labels, found


def split_file(
    path: str | Path,
    out_dir: str | Path,
    share: float = 0.1,
    min_rating: float | None = None,
    separator: str = ',',
    seed: int = 0,
) -> list[Path]:
    """Write the lines of a file to a training and a test file, whole or not at all; their paths."""
    check_within('(0, 1)', share=share)
    check_at_least(0, seed=seed)
    pairs = read_csv(path, min_rating, separator)
    # A random share of each user's pairs.
    keys = np.random.default_rng(seed).random(len(pairs))
    order = np.lexsort((keys, pairs.rows))
    starts = pairs.row_starts
    place = np.arange(len(pairs)) - starts[pairs.rows]
    wanted = (share * np.diff(starts)).astype(int)
    held_out = np.zeros(len(pairs), dtype=bool)
    held_out[order] = place < wanted[pairs.rows]
    # An item without a training pair could never be learnt.
    order = np.lexsort((keys, held_out, pairs.cols))
    _, first = np.unique(pairs.cols[order], return_index=True)
    held_out[order[first]] = False
    is_test = {
        (pairs.row_names[i], pairs.col_names[j]): out
        for i, j, out in zip(pairs.rows, pairs.cols, held_out.tolist())
    }
    header, columns, rows = table_of_interactions(path, separator)
    train = [header] if header else []
    test = list(train)
    for place, fields in rows:
        row = dict(zip(columns, fields))
        if min_rating is None or is_kept(row['rating'], min_rating, place):
            is_out = is_test[row['user'], row['item']]
            (test if is_out else train).append(fields)
    suffix = Path(str(path).removesuffix('.gz')).suffix or '.csv'
    paths = [Path(out_dir) / f'{name}{suffix}' for name in ('train', 'test')]
    with whole_folder(out_dir, path) as folder:
        for target, lines in zip(paths, (train, test)):
            with (folder / target.name).open('w', encoding='utf-8', newline='') as file:
                if separator == ',':
                    csv.writer(file, lineterminator='\n').writerows(lines)
                else:
                    file.writelines(separator.join(line) + '\n' for line in lines)
    return paths
