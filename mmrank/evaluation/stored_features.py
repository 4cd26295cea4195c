"""Embeddings of a test kept in a file, not in memory."""

import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.dist import all_gather_object, broadcast_object_list, get_rank, is_main_process
from torch import Tensor

from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures

# Rows that are put together at a time.
_ROWS = 4096


class StoredFeatures:
    """What :class:`FeatureMetric` keeps of this rank's samples, in a file.

    A label and a role are 9 bytes a sample in memory.

    Args:
        folder: Where the file is; with several machines on a disk that they share. None for the
            system's folder of temporary files.
    """

    def __init__(self, folder: str | None = None) -> None:
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        handle, self.path = tempfile.mkstemp(f'.rank_{get_rank()}', 'features-', folder)
        self._file = os.fdopen(handle, 'wb')
        self._remove = weakref.finalize(self, _remove, self._file, self.path)
        self._labels: list[np.ndarray] = []
        self._roles: list[np.ndarray] = []
        self._type, self._dimensions = None, 0

    def append(
        self, features: Tensor, labels: Sequence[int], in_gallery: Sequence[bool | None]
    ) -> None:
        """Keep a batch.

        Args:
            features: (n, D) on the CPU, of one dtype and D.
            labels: n class indices.
            in_gallery: n bools, or None.
        """
        rows = features.numpy()
        self._type, self._dimensions = rows.dtype, rows.shape[1]
        self._file.write(np.ascontiguousarray(rows).data)
        self._labels.append(np.array(labels, np.int64))
        if None not in in_gallery:
            self._roles.append(np.array(in_gallery, bool))

    def gather(self, size: int, similarity: str) -> RetrievalFeatures:
        """All samples of all ranks in the order of the data set.

        Args:
            size: Samples of the data set; what a sampler padded is dropped.
            similarity: ``'cosine'`` or ``'dot'``.

        Returns:
            The samples, of which the embeddings stay in a file.

        Raises:
            ValueError: If there is no sample.
            UserError: If the ranks share no disk, or it is full.
        """
        self._file.flush()
        mine = dict(
            path=self.path,
            dtype=None if self._type is None else self._type.str,
            dimensions=self._dimensions,
            labels=_join(self._labels, np.int64),
            roles=_join(self._roles, bool),
        )
        parts = all_gather_object(mine)
        counts = [len(part['labels']) for part in parts]
        if not min(counts):
            raise ValueError('a rank got no sample; is the data set empty?')
        total = min(sum(counts), size)
        shape = total, self._dimensions
        if len(parts) == 1:
            path = self.path
        else:
            message: list = [None, '']
            if is_main_process():
                try:
                    message[0] = self._interleave(parts)
                except OSError as error:  # the other ranks wait for a word
                    message[1] = str(error)
            broadcast_object_list(message)
            path, fault = message
            if fault:
                raise UserError(
                    f'the embeddings of all ranks cannot be put together: {fault}. Fix: set '
                    'collect_dir of RetrievalMetric to a folder on a disk that all machines share'
                )

        def in_turn(name):
            joined = np.empty(sum(counts), parts[0][name].dtype)
            for rank, part in enumerate(parts):
                joined[rank :: len(parts)] = part[name]
            return torch.from_numpy(joined[:total])

        has_roles = len(parts[0]['roles']) > 0
        return RetrievalFeatures(
            features=np.memmap(path, self._type, 'r', 0, shape),
            labels=in_turn('labels'),
            in_gallery=in_turn('roles') if has_roles else None,
            similarity=similarity,
        )

    def _interleave(self, parts: Sequence[dict]) -> str:
        """One file of the rows of all ranks, a row of each in turn."""
        counts = [len(part['labels']) for part in parts]
        row = self._type.itemsize * self._dimensions
        path = f'{self.path}.all'
        whole = np.memmap(path, self._type, 'w+', 0, (sum(counts), self._dimensions))
        self._remove_whole = weakref.finalize(self, _remove, None, path)
        for rank, part in enumerate(parts):
            with open(part['path'], 'rb') as file:
                for begin in range(0, counts[rank], _ROWS):
                    rows = np.frombuffer(file.read(_ROWS * row), self._type)
                    rows = rows.reshape(-1, self._dimensions)
                    first = begin * len(parts) + rank
                    last = first + (len(rows) - 1) * len(parts) + 1
                    whole[first : last : len(parts)] = rows
        whole.flush()
        return path


def _join(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *parts])


def _remove(file, path: str) -> None:
    if file is not None:
        file.close()
    Path(path).unlink(missing_ok=True)
