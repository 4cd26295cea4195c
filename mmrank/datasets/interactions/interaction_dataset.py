"""Data sets of positive pairs, for training and for top-k evaluation."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from mmengine.logging import print_log
from torch.utils.data import Dataset

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.pair_files import read_csv, read_xmc
from mmrank.errors import UserError, UserTypeError
from mmrank.registry import DATASETS, FUNCTIONS
from mmrank.settings import one_of

READERS = {
    'csv': read_csv,
    'movielens': partial(read_csv, min_rating=4, separator='::'),
    'xmc': read_xmc,
}
SAMPLINGS = ('in_batch', 'sogram')


def _read(
    ann_file: str | Path, data_root: str | Path = '', file_format: str = 'csv', **options
) -> Interactions:
    """Read the positive pairs of a file, and say what does not count."""
    one_of('file_format', file_format, READERS)
    pairs = READERS[file_format](Path(data_root) / ann_file, **options)
    for count, what in (
        (pairs.num_repeated, 'pairs repeat another one, and each counts once'),
        (
            pairs.num_unknown,
            'pairs are left out of the evaluation: their user, item or label does not occur in '
            'the training pairs',
        ),
    ):
        if count:
            text = f'{ann_file}: {count} {what}.'
            print_log(text, logger='current', level=logging.WARNING)
    return pairs


class _PairBatch(dict):
    """A whole batch; says so to a collate function that expects samples."""

    def __missing__(self, key: object) -> None:
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

    A whole batch is put together at once by ``__getitems__``, so the data loader needs
    ``collate_fn=dict(type='mmrank.pair_collate')``. A batch holds each distinct entity once and
    says where the pairs find theirs.

    Args:
        ann_file: File of the pairs.
        sampling: What ``mmrank.InBatchPairSampler`` yields. ``in_batch``: numbers of positive
            pairs. ``sogram``: the same, of two samples behind each other.
        **reading: ``data_root``, folder of the file; ``file_format``: ``csv``:
            ``user,item[,rating][,timestamp]``; ``movielens``: the same with ``::`` between, ratings
            below 4 left out; ``xmc``: multi-label text with sparse features, also called LIBSVM;
            and arguments of :func:`read_csv` (``min_rating``) or :func:`read_xmc` (``one_based``).
    """

    def __init__(self, ann_file: str | Path, sampling: str = 'in_batch', **reading) -> None:
        one_of('sampling', sampling, SAMPLINGS)
        self.sampling = sampling
        self.interactions = _read(ann_file, **reading)
        m, n = self.interactions.shape
        self.metainfo = dict(num_rows=m, num_cols=n)

    def __len__(self) -> int:
        return len(self.interactions)

    def __getitem__(self, index: int) -> dict:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> dict:
        """The batch of what the sampler yielded, as a dict of int64 tensors; see ``sampling``.

        ``rows`` and ``cols`` (B,), ``left`` and ``right``, dicts with the distinct entities as
        ``ids``, ``left_index`` and ``right_index`` (B,) into them; with C uniform right entities
        ``cols`` and ``right_index`` are (B + C,). ``left`` also has the sparse features, where
        there are any, as ``starts``, ``indices`` and ``values``.
        """
        indices = np.asarray(indices, dtype=np.int64)
        pairs = self.interactions
        # Behind the pairs stand right entities of no pair.
        is_pair = indices < len(pairs)
        rows = pairs.rows[indices[is_pair]]
        cols = np.concatenate([pairs.cols[indices[is_pair]], indices[~is_pair] - len(pairs)])
        if self.sampling == 'sogram':
            rows = rows[: (len(rows) + 1) // 2]
        left, left_index = np.unique(rows, return_inverse=True)
        right, right_index = np.unique(cols, return_inverse=True)
        return _PairBatch(
            rows=torch.from_numpy(rows),
            cols=torch.from_numpy(cols),
            left_index=torch.from_numpy(left_index),
            right_index=torch.from_numpy(right_index),
            left=entities(left, pairs.row_features),
            right=entities(right, None),
        )


@DATASETS.register_module()
class TopKDataset(Dataset):
    """Held-out pairs to evaluate a two-tower model on.

    An item is a left entity that has a held-out pair. The pairs that it has in the training set are
    not to be found again.

    Args:
        ann_file: Held-out pairs.
        train_ann_file: Training pairs, of the same form. They number the entities.
        **reading: As for :class:`InteractionDataset`, for both files.

    Raises:
        UserError: If a held-out pair is a training pair as well; see also the readers.
    """

    def __init__(self, ann_file: str | Path, train_ann_file: str | Path, **reading) -> None:
        train = _read(train_ann_file, **reading)
        held_out = _read(ann_file, vocabulary=train, **reading)
        self.interactions = held_out
        # The lines of a multi-label test file are entities of their own.
        self._train = train if held_out.row_features is None else None
        if self._train is not None:
            both = self._train.is_positive(held_out.rows, held_out.cols)
            if both.any():
                i = int(both.argmax())
                raise UserError(
                    f'{int(both.sum())} held-out pairs are training pairs, the first is '
                    f'({held_out.row_names[held_out.rows[i]]!s:.80}, '
                    f'{held_out.col_names[held_out.cols[i]]!s:.80}). Fix: remove them from '
                    f'{ann_file}'
                )
        self._rows = np.unique(held_out.rows)
        m, n = held_out.shape
        self.metainfo = dict(num_rows=m, num_cols=n)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict:
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
        return _PairBatch(
            left=entities(rows, pairs.row_features),
            num_right=pairs.shape[1],
            true=_as_tensors(pairs.of_rows(rows)),
            seen=_as_tensors(seen),
        )


@FUNCTIONS.register_module()
def pair_collate(batch: dict) -> dict:
    """Return the batch that ``__getitems__`` of a data set collated; TypeError for samples."""
    if not isinstance(batch, dict):
        raise UserTypeError(
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
