"""Reads multi-label text with sparse features."""

import re
from array import array
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from mmrank.annotations.text_tables import read_lines
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.errors import UserError

#: ``lines features labels``.
_HEADER = re.compile(r'\d{1,10} (\d{1,10}) \d{1,10}\s*')


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
    if not np.isfinite(found.astype(np.float32)).all():
        raise ValueError('a value is not finite as float32')
    return labels, found
