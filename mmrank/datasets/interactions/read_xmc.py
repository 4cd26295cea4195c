"""Reads multi-label texts with sparse features."""

from array import array
from pathlib import Path

import numpy as np

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.read_csv import text_lines
from mmrank.errors import UserError

#: Features are numbered by int32.
_MOST_DIGITS = 10


def read_xmc(
    path: str | Path, vocabulary: Interactions | None = None, one_based: bool = False
) -> Interactions:
    """Read LIBSVM's multi-label form: ``label,label feature:value ...``.

    Left entities are the lines, named by their numbers, right ones the labels, numbered as they
    first occur. The files of the extreme classification repository begin with a line ``lines
    features labels``, which is then checked. Lines without a label, which begin with a blank, have
    no positive pair and are left out.

    Args:
        path: The file, also ``.gz``.
        vocabulary: Number the labels, and count the features, as here: the training set. Pairs with
            other labels are left out and counted, and so are features beyond its last, which no
            weight was learnt for. The lines are new entities all the same.
        one_based: Features are numbered from 1, not 0.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: On a line that cannot be read, naming it, or if there is no pair.
    """
    fixed = vocabulary is not None
    names = vocabulary.col_names if fixed else ()
    labels = {name: i for i, name in enumerate(names)}
    rows, cols, unknown = array('q'), array('q'), 0
    row_names = []
    starts, indices, values = array('q', [0]), array('i'), array('f')
    header = None
    for number, line in enumerate(text_lines(path), 1):
        line = line.rstrip('\r\n')
        if number == 1:
            header = _header(line, path)
            if header:
                continue
        if not line.strip():
            continue
        own, _, features = line.partition(' ')
        if ':' in own:
            own, features = '', line
        if not own:
            continue
        row = len(row_names)
        before = len(cols)
        for label in own.split(','):
            try:
                float(label)
            except ValueError:
                raise ValueError(
                    f'{path}, line {number}: label {label!r:.40} is not a number; '
                    'expected `label,label feature:value feature:value ...`'
                ) from None
            if not fixed:
                col = labels.setdefault(label, len(labels))
            elif (col := labels.get(label)) is None:
                unknown += 1
                continue
            rows.append(row)
            cols.append(col)
        if len(cols) == before:
            continue
        row_names.append(str(number))
        _append(features, indices, values, one_based, path, number)
        starts.append(len(indices))
    if not row_names:
        raise ValueError(f'{path} has no line with a known label')
    _check_finite(values, starts, row_names, path)
    features = _features(starts, indices, values, vocabulary, header, path)
    try:
        return Interactions.of_pairs(
            np.asarray(rows),
            np.asarray(cols),
            row_names,
            list(labels),
            row_features=features,
            num_unknown=unknown,
        )
    except ValueError as error:
        raise ValueError(f'{path}, by line: {error}') from None


def _header(line: str, path) -> list[int] | None:
    parts = line.split()
    if len(parts) != 3 or not all(x.isdecimal() for x in parts):
        return None
    if max(map(len, parts)) > _MOST_DIGITS:
        raise ValueError(
            f'{path}, line 1: {line!r:.80} declares more entries than there '
            'can be; expected `lines features labels`'
        )
    return [int(x) for x in parts]


def _append(features, indices, values, one_based, path, number) -> None:
    try:
        for entry in features.split():
            index, value = entry.split(':')
            indices.append(int(index) - one_based)
            values.append(float(value))
            if indices[-1] < 0:
                raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(
            f'{path}, line {number}: {entry!r:.40} is not feature:value with '
            f'an integer feature >= {int(one_based)}'
        ) from None


def _check_finite(values, starts, row_names, path) -> None:
    bad = np.flatnonzero(~np.isfinite(np.asarray(values)))
    if len(bad):
        row = int(np.searchsorted(starts, bad[0], side='right')) - 1
        raise UserError(
            f'{path}, line {row_names[row]}: a value is {values[bad[0]]}, as '
            'float32. Fix: write a finite number'
        )


def _features(starts, indices, values, vocabulary, header, path):
    """Sparse matrix of the features, (lines, number of features) float32."""
    from scipy.sparse import csr_array

    size = int(np.asarray(indices).max(initial=-1)) + 1
    if vocabulary is None:
        if header and size > header[1]:
            raise ValueError(
                f'{path} has feature {size - 1}, but its first line declares {header[1]} features; '
                'if they count from 1, set one_based=True'
            )
        width = header[1] if header else size
        return csr_array((values, indices, starts), (len(starts) - 1, width), np.float32)
    width = vocabulary.row_features.shape[1]
    found = csr_array((values, indices, starts), (len(starts) - 1, max(size, width)), np.float32)
    return found[:, :width]
