"""Reads multi-label text with sparse features."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.tables import read_lines
from mmrank.errors import UserError
from mmrank.imports import required_package

#: ``lines features labels``.
_HEADER = re.compile(r'\d{1,10} (\d{1,10}) \d{1,10}\s*')


def read_xmc(
    path: str | Path, vocabulary: Interactions | None = None, one_based: bool = False
) -> Interactions:
    """Read LIBSVM's multi-label form, ``label,label feature:value ...``, by scikit-learn.

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
    with required_package('sklearn', "file_format='xmc'", 'pip install scikit-learn'):
        from sklearn.datasets import load_svmlight_file

    lines = _Lines(path)
    try:
        features, labels = load_svmlight_file(
            lines, dtype=np.float32, multilabel=True, zero_based=not one_based
        )
        own = [str(int(x)) for x in chain.from_iterable(labels) if x == int(x)]
        if len(own) < sum(map(len, labels)):
            raise ValueError('a label is a fraction')
    except UserError:
        raise
    except (ValueError, OverflowError) as error:
        raise UserError(
            f'{path}:{lines.number}: {lines.line!r:.80} cannot be read: {error}. Fix: '
            'write lines `label,label feature:value feature:value ...`, labels as whole numbers, '
            f'features from {int(one_based)} on, rising'
        ) from error
    bad = np.flatnonzero(~np.isfinite(features.data))
    if len(bad):
        row = int(np.searchsorted(features.indptr, bad[0], side='right')) - 1
        raise UserError(
            f'{path}:{lines.numbers[row]}: a value is {features.data[bad[0]]}, as float32. Fix: '
            'write a finite number'
        )
    counts = [len(x) for x in labels]
    names = dict.fromkeys(own) if vocabulary is None else vocabulary.col_names
    index = {name: i for i, name in enumerate(names)}
    cols = np.array([index.get(x, -1) for x in own], dtype=np.int64)
    is_known = cols >= 0
    lines_of_pairs = np.repeat(np.arange(len(counts)), counts)[is_known]
    chosen, rows = np.unique(lines_of_pairs, return_inverse=True)
    if not len(chosen):
        raise UserError(f'{path} has no line with a known label. Fix: check ann_file')
    features = features[chosen]
    size = int(features.indices.max(initial=-1)) + 1
    width = lines.num_features or size
    if vocabulary is not None:
        width = vocabulary.row_features.shape[1]
    elif size > width:
        raise UserError(
            f'{path} has feature {size - 1}, but its first line declares {width} features. Fix: '
            'if they count from 1, set one_based=True'
        )
    features.resize((features.shape[0], width))
    row_names = [str(lines.numbers[i]) for i in chosen.tolist()]
    unknown = int((~is_known).sum())
    return Interactions(rows, cols[is_known], row_names, list(index), features, unknown)


class _Lines:
    """Lines of a file for ``load_svmlight_file``; knows where it is when it stops.

    Attributes:
        line: The last line.
        numbers: Numbers of the lines with an entry.
        num_features: Declared by the first line, or None.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.line = ''
        self.number = 0
        self.numbers: list[int] = []
        self.num_features: int | None = None

    def read(self) -> bytes:
        """Mark a file for scikit-learn, which goes through its lines."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        for line in read_lines(self.path):
            self.number += 1
            self.line = line
            header = _HEADER.fullmatch(line) if self.number == 1 else None
            if header:
                self.num_features = int(header[1])
            elif line.partition('#')[0].strip():
                self.numbers.append(self.number)
                yield line.encode()
