"""Data sets of positive pairs, for training and for top-k evaluation."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.logging import print_log
from torch.utils.data import Dataset

from mmrank.checks import one_of
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.read_csv import read_csv
from mmrank.datasets.interactions.read_xmc import read_xmc
from mmrank.errors import MissingFileError, UserError
from mmrank.registry import DATASETS, FUNCTIONS

FORMATS = ('csv', 'movielens', 'xmc')
SAMPLINGS = ('in_batch', 'sogram', 'naive', 'cross')


def read_interactions(
    ann_file: str | Path,
    data_root: str | Path = '',
    file_format: str = 'csv',
    min_rating: float | None = None,
    duplicates: str = 'error',
    one_based: bool = False,
    vocabulary: Interactions | None = None,
) -> Interactions:
    """Read the positive pairs of a file.

    Args:
        ann_file: The file, relative to ``data_root``.
        data_root: Folder.
        file_format: ``csv``: ``user,item[,rating][,timestamp]``; ``movielens``: the same with
            ``::`` between, ratings below ``min_rating`` left out, 4 if None; ``xmc``: multi-label
            text with sparse features, also called LIBSVM.
        min_rating: See :func:`read_csv`.
        duplicates: See :meth:`Interactions.of_pairs`; for ``xmc`` only ``error``.
        vocabulary: The training set, for a test set.
        one_based: See :func:`read_xmc`.
    """
    path = Path(data_root) / ann_file
    one_of('file_format', file_format, FORMATS)
    if file_format == 'xmc':
        if min_rating is not None or duplicates != 'error':
            raise ValueError(
                "file_format='xmc' has neither ratings nor duplicates to "
                'merge; remove min_rating and duplicates'
            )
        return read_xmc(path, vocabulary, one_based)
    if one_based:
        raise ValueError(
            f'one_based counts features, of which file_format={file_format!r} has none; remove it'
        )
    separator = ','
    if file_format == 'movielens':
        separator, min_rating = '::', 4 if min_rating is None else min_rating
    return read_csv(path, min_rating, separator, vocabulary, duplicates)


class PairBatch(dict):
    """A whole batch; says so to a collate function that expects samples."""

    def __missing__(self, key: object) -> None:
        """Raise a ``UserError`` to a collate function that takes it for a list of samples."""
        if isinstance(key, int):
            raise UserError(
                'the data set returns whole batches, and collate_fn of its data loader takes them '
                "for lists of samples. Fix: collate_fn=dict(type='mmrank.pair_collate') in "
                'train_dataloader, val_dataloader and test_dataloader'
            )
        raise KeyError(key)


@DATASETS.register_module()
class InteractionDataset(Dataset):
    """Positive pairs to train a two-tower model on.

    A sampler of the same kind as ``sampling`` says which pairs a batch has; a whole batch is put
    together at once by ``__getitems__``, so the data loader needs
    ``collate_fn=dict(type='mmrank.pair_collate')``. A batch holds each distinct entity once and
    says where the pairs find theirs.

    Args:
        ann_file: See :func:`read_interactions`.
        sampling: What the sampler yields. ``in_batch``: numbers of positive pairs
            (``mmrank.InBatchPairSampler``). ``sogram``: the same, of two samples behind each other.
            ``naive``: cells of the matrix (``mmrank.NaivePairSampler``). ``cross``: rows and
            columns (``mmrank.CrossPairSampler``).
        **reading: Further arguments of :func:`read_interactions`.

    Raises:
        ValueError: On an unknown ``sampling``; see also the readers.
    """

    def __init__(self, ann_file: str | Path, sampling: str = 'in_batch', **reading) -> None:
        one_of('sampling', sampling, SAMPLINGS)
        self.sampling = sampling
        self.interactions = read_interactions(ann_file, **reading)
        m, n = self.interactions.shape
        self.metainfo = dict(num_rows=m, num_cols=n)

    def __len__(self) -> int:
        """Number of what the sampler can yield."""
        m, n = self.interactions.shape
        if self.sampling == 'naive':
            return m * n
        return m + n if self.sampling == 'cross' else len(self.interactions)

    def __getitem__(self, index: int) -> dict:
        """The batch of one index."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> dict:
        """The batch of what the sampler yielded, as a dict of int64 tensors; see ``sampling``.

        ``rows`` and ``cols`` (B,), ``left`` and ``right``, dicts with the distinct entities as
        ``ids``, ``left_index`` and ``right_index`` (B,) into them; with C uniform right entities
        ``cols`` and ``right_index`` are (B + C,); for ``naive`` also
        ``is_positive`` (B,) bool, for ``cross`` (R, C). ``left`` also has the sparse features,
        where there are any, as ``starts``, ``indices`` and ``values``.
        """
        indices = np.asarray(indices, dtype=np.int64)
        pairs, (m, n) = self.interactions, self.interactions.shape
        batch = {}
        if self.sampling == 'naive':
            rows, cols = np.divmod(indices, n)
            batch['is_positive'] = pairs.is_positive(rows, cols)
        elif self.sampling == 'cross':
            rows, cols = indices[indices < m], indices[indices >= m] - m
            batch['is_positive'] = pairs.is_positive(rows[:, None], cols)
        else:
            # Behind the pairs stand right entities of no pair.
            own = indices[indices < len(pairs)]
            others = indices[indices >= len(pairs)] - len(pairs)
            rows, cols = pairs.rows[own], np.concatenate([pairs.cols[own], others])
            if self.sampling == 'sogram':
                rows = rows[: (len(rows) + 1) // 2]
        left, left_index = np.unique(rows, return_inverse=True)
        right, right_index = np.unique(cols, return_inverse=True)
        batch.update(rows=rows, cols=cols, left_index=left_index, right_index=right_index)
        batch = PairBatch((k, torch.from_numpy(v)) for k, v in batch.items())
        batch['left'] = entities(left, pairs.row_features)
        batch['right'] = entities(right, None)
        return batch


@DATASETS.register_module()
class TopKDataset(Dataset):
    """Held-out pairs to evaluate a two-tower model on.

    An item is a left entity that has a held-out pair. The pairs that it has in the training set are
    not to be found again.

    Args:
        ann_file: Held-out pairs; see :func:`read_interactions`.
        train_ann_file: Training pairs, of the same form. They number the entities.
        **reading: Further arguments of :func:`read_interactions`, for both files.

    Raises:
        ValueError: If a held-out pair is a training pair as well; see also the readers.
    """

    def __init__(self, ann_file: str | Path, train_ann_file: str | Path, **reading) -> None:
        # A training file of ten million lines takes a while to read.
        held_out_path = Path(reading.get('data_root', '')) / ann_file
        if not held_out_path.is_file():
            raise MissingFileError(
                f'ann_file {held_out_path} of the held-out pairs does not '
                'exist. Fix: correct ann_file or data_root'
            )
        train = read_interactions(train_ann_file, **reading)
        held_out = read_interactions(ann_file, vocabulary=train, **reading)
        self.interactions = held_out
        if held_out.num_unknown:
            print_log(
                f'{held_out.num_unknown} of the pairs in {ann_file} are left out of the '
                'evaluation: their user, item or label does not occur in the training pairs.',
                logger='current',
                level=logging.WARNING,
            )
        # The lines of a multi-label test file are entities of their own.
        self._train = train if held_out.row_features is None else None
        if self._train is not None:
            both = self._train.is_positive(held_out.rows, held_out.cols)
            if both.any():
                i = int(both.argmax())
                raise ValueError(
                    f'{int(both.sum())} held-out pairs are training pairs, the first is '
                    f'({held_out.row_names[held_out.rows[i]]!s:.80}, '
                    f'{held_out.col_names[held_out.cols[i]]!s:.80}); remove them from {ann_file}'
                )
        self._rows = np.unique(held_out.rows)
        m, n = held_out.shape
        self.metainfo = dict(num_rows=m, num_cols=n)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict:
        """The batch of one left entity."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> dict:
        """The batch of some of the left entities with a held-out pair, in this order.

        A dict with ``left`` as in :class:`InteractionDataset`; ``num_right`` n; ``true`` and
        ``seen``, each a dict of int64 tensors: ``cols`` of the held-out and the training pairs, and
        ``rows``, the number in the batch.
        """
        rows = self._rows[np.asarray(indices, dtype=np.int64)]
        pairs = self.interactions
        nothing = np.zeros(0, dtype=np.int64)
        seen = (nothing, nothing) if self._train is None else self._train.of_rows(rows)
        return PairBatch(
            left=entities(rows, pairs.row_features),
            num_right=pairs.shape[1],
            true=_as_tensors(pairs.of_rows(rows)),
            seen=_as_tensors(seen),
        )


@FUNCTIONS.register_module()
def pair_collate(batch: dict) -> dict:
    """Return the batch that ``__getitems__`` of a data set collated.

    Raises:
        TypeError: If it is a list of samples: the data set has no ``__getitems__``.
    """
    if not isinstance(batch, dict):
        raise TypeError(
            'mmrank.pair_collate takes whole batches, which only InteractionDataset and '
            f'TopKDataset without a wrapper return; got {type(batch).__name__}'
        )
    return batch


def entities(ids: np.ndarray, features) -> dict[str, torch.Tensor]:
    """What a tower is given: numbers and, if any, sparse features."""
    result = dict(ids=torch.from_numpy(ids))
    if features is not None:
        taken = features[ids]
        result['starts'] = torch.from_numpy(taken.indptr).long()
        result['indices'] = torch.from_numpy(taken.indices).long()
        result['values'] = torch.from_numpy(taken.data)
    return result


def _as_tensors(pairs: tuple[np.ndarray, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(x) for key, x in zip(('rows', 'cols'), pairs)}
