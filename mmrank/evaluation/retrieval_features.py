"""Embeddings of a test set with labels and image files, in memory or in a file."""

import os
import tempfile
import weakref
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from mmengine.dist import all_gather_object, broadcast_object_list, get_rank, is_main_process
from torch import Tensor

from mmrank.errors import UserError
from mmrank.files import replace_atomically
from mmrank.functional import StoredEmbeddings

#: Kinds of NumPy, dimensions and contents of the arrays of a file.
_ARRAYS = {
    'features': ('f', 2, 'floats, (N, D)'),
    'labels': ('iu', 1, 'integers'),
    'in_gallery': ('b', 1, 'bool'),
    'paths': ('U', 1, 'texts'),
    'classes': ('U', 1, 'texts'),
    'similarity': ('U', 0, 'one text'),
}


@dataclass(frozen=True)
class RetrievalFeatures:
    """Input of a retrieval: (N, D) float embeddings, a tensor or mapped from a file.

    ``labels`` are (N,) int64 class indices. ``in_gallery`` is (N,) bool, False for queries; None
    when every sample is both and searches all others. ``classes`` are names by index; these and the
    image ``paths`` are None where not known. ``similarity`` is ``'cosine'`` or ``'dot'``.
    """

    features: Tensor | np.memmap
    labels: Tensor
    in_gallery: Tensor | None = None
    paths: Sequence[str] | None = None
    classes: Sequence[str] | None = None
    similarity: str = 'cosine'
    #: (N, L) int64 labels from coarse to fine where there are several levels; not in files.
    levels: Tensor | None = None
    #: (N,) bool, samples that search, whether they are in the gallery or not; not in files.
    is_query: Tensor | None = None
    #: (N,) int64 ids, of which a query leaves out its own in its class; not in files.
    ids: Tensor | None = None

    def rows_of_queries(self) -> Tensor:
        """Rows of the queries, (Q,) int64."""
        if self.is_query is not None:
            return self.is_query.nonzero()[:, 0]
        if self.in_gallery is None:
            return torch.arange(len(self.labels), device=self.labels.device)
        return self.in_gallery.logical_not().nonzero()[:, 0]

    def rows_of_gallery(self) -> Tensor:
        """Rows of the gallery, (G,) int64."""
        if self.in_gallery is None:
            return torch.arange(len(self.labels), device=self.labels.device)
        return self.in_gallery.nonzero()[:, 0]

    def to(self, device: str | torch.device) -> 'RetrievalFeatures':
        """The same on another device; on the CPU if they are in a file."""
        if isinstance(self.features, np.memmap):
            device = 'cpu'
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **{name: x.to(device) for name, x in tensors.items()})

    def embeddings(self, rows: Tensor | None = None) -> Tensor | StoredEmbeddings:
        """All embeddings, or some rows of them; embeddings of a file stay there."""
        if isinstance(self.features, np.memmap):
            return StoredEmbeddings(self.features, rows)
        return self.features if rows is None else self.features[rows]

    def gallery_embeddings(self) -> Tensor | StoredEmbeddings:
        """Embeddings of the gallery."""
        return self.embeddings(None if self.in_gallery is None else self.rows_of_gallery())

    def sets(self) -> tuple[Tensor | StoredEmbeddings, ...]:
        """First arguments of ``retrieval_metrics``."""
        if self.in_gallery is None and self.is_query is None:
            return self.embeddings(), self.labels
        parts = self.rows_of_queries(), self.rows_of_gallery()
        return tuple(x for rows in parts for x in (self.embeddings(rows), self.labels[rows]))

    def left_out(self) -> Tensor | tuple[Tensor, Tensor] | None:
        """The argument ``leave_out`` of ``retrieval_metrics`` that goes with :meth:`sets`."""
        if self.in_gallery is None and self.is_query is None:
            return self.ids
        ids = self.ids
        if ids is None and self.is_query is not None:
            # A query that is in the gallery leaves itself out.
            ids = torch.arange(len(self.labels), device=self.labels.device)
        return None if ids is None else (ids[self.rows_of_queries()], ids[self.rows_of_gallery()])


def save_features(features: RetrievalFeatures, path: str | os.PathLike) -> Path:
    """Write an ``.npz`` file atomically; its folder is made if needed.

    Embeddings are of any float dtype but bfloat16, which NumPy does not know.
    """
    arrays = {'similarity': np.array(features.similarity)}
    for name in ('features', 'labels', 'in_gallery'):
        value = getattr(features, name)
        if value is not None:
            arrays[name] = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    for name in ('paths', 'classes'):
        if getattr(features, name) is not None:
            arrays[name] = np.array(list(getattr(features, name)), dtype=np.str_)
    with replace_atomically(path) as temporary, open(temporary, 'wb') as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    return Path(path)


def load_features(path: str | os.PathLike, stored: bool = False) -> RetrievalFeatures:
    """Read an ``.npz`` file of ``RetrievalMetric(out_file=...)``, to the CPU.

    ``stored`` leaves the embeddings in the file, for galleries larger than the memory.
    """
    path = Path(path)
    fix = "Fix: write one with RetrievalMetric(out_file='features.npz')."
    if not path.is_file():
        raise UserError(f'feature file {str(path)!r} does not exist. {fix}')
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if not stored or name != 'features'}
        if stored:
            arrays['features'] = _map_features(path)
    except Exception as error:  # damaged bytes raise anything, a MemoryError among them
        raise UserError(f'{path} is not an .npz file of features: {error}. {fix}') from error
    # What is not an array of NumPy is read as bytes.
    arrays = {name: x for name, x in arrays.items() if isinstance(x, np.ndarray)}
    for name, (kinds, ndim, what) in _ARRAYS.items():
        value = arrays.get(name)
        if value is None and name not in ('features', 'labels'):
            continue
        if value is None or value.dtype.kind not in kinds or value.ndim != ndim:
            found = {k: f'{v.dtype} of {v.ndim} dimensions' for k, v in arrays.items()}
            raise UserError(f'{path} has no array {name!r} of {what}, only {found}. {fix}')
    features, in_gallery = arrays['features'], arrays.get('in_gallery')
    if not features.dtype.isnative or features.dtype.itemsize > 8:
        raise UserError(f"{path}: 'features' are {features.dtype.str}. Fix: write them as float32")
    similarity = str(arrays.get('similarity', 'cosine'))
    if similarity not in ('cosine', 'dot'):
        raise UserError(f"{path}: similarity={similarity!r:.80}. Fix: 'cosine' or 'dot'")
    samples = len(features)
    for name in ('labels', 'in_gallery', 'paths'):
        if name in arrays and arrays[name].shape != (samples,):
            raise UserError(
                f'{path}: {name!r} has the shape {arrays[name].shape}, but '
                f"'features' holds {samples} samples. Fix: write one entry "
                'per sample.'
            )
    return RetrievalFeatures(
        features=features if stored else torch.from_numpy(features),
        labels=torch.from_numpy(arrays['labels'].astype(np.int64)),
        in_gallery=None if in_gallery is None else torch.from_numpy(in_gallery),
        paths=arrays['paths'].tolist() if 'paths' in arrays else None,
        classes=arrays['classes'].tolist() if 'classes' in arrays else None,
        similarity=similarity,
    )


def _map_features(path: Path) -> np.memmap:
    """Map the array ``features`` of an uncompressed ``.npz`` file.

    NumPy maps ``.npy`` files alone. A member of an uncompressed archive is one, at an offset that
    its local header tells (APPNOTE.TXT of PKWARE, 4.3.7).
    """
    with zipfile.ZipFile(path) as archive:
        if 'features.npy' not in archive.namelist():
            raise ValueError("it has no array 'features'")
        member = archive.getinfo('features.npy')
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError('it is compressed, and cannot be left on disk')
    with open(path, 'rb') as file:
        file.seek(member.header_offset + 26)
        lengths = np.frombuffer(file.read(4), '<u2')
        file.seek(int(lengths.sum()), os.SEEK_CUR)
        version = np.lib.format.read_magic(file)
        read = getattr(np.lib.format, f'read_array_header_{version[0]}_{version[1]}')
        shape, is_fortran, dtype = read(file)
        if is_fortran:
            raise ValueError('its array is in the order of Fortran')
        return np.memmap(path, dtype, 'r', file.tell(), shape)


class StoredFeatures:
    """Features of this rank's samples in a file; in memory are 9 bytes a sample.

    With several machines ``folder`` is on a disk that they share; None for the system's folder of
    temporary files.
    """

    def __init__(self, folder: str | None = None) -> None:
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        handle, self.path = tempfile.mkstemp(f'.rank_{get_rank()}', 'features-', folder)
        self._file = os.fdopen(handle, 'wb')
        weakref.finalize(self, _remove, self._file, self.path)
        self._labels, self._roles = [np.empty(0, np.int64)], [np.empty(0, bool)]
        self._kind: tuple[str, int] | None = None

    def append(
        self, features: Tensor, labels: Sequence[int], in_gallery: Sequence[bool | None]
    ) -> None:
        """Keep (n, D) features on the CPU, their n labels and n roles, which may be None."""
        rows = np.ascontiguousarray(features.numpy())
        kind = rows.dtype.str, rows.shape[1]
        self._kind = self._kind or kind
        _check_kinds([self._kind, kind])
        self._file.write(rows.data)
        self._labels.append(np.array(labels, np.int64))
        if None not in in_gallery:
            self._roles.append(np.array(in_gallery, bool))

    def gather(self, size: int, similarity: str) -> RetrievalFeatures:
        """The ``size`` samples of all ranks in the order of the data set, embeddings in a file."""
        self._file.flush()
        mine = [np.concatenate(x) for x in (self._labels, self._roles)]
        paths, kinds, labels, roles = zip(*all_gather_object((self.path, self._kind, *mine)))
        counts = [len(x) for x in labels]
        if not min(counts):
            raise ValueError('a rank got no sample; is the data set empty?')
        _check_kinds(kinds)
        dtype, dimensions = self._kind
        path = self.path
        if len(paths) > 1:
            message = [f'{paths[0]}.all', '']
            if is_main_process():
                weakref.finalize(self, _remove, None, message[0])
                try:
                    files = [
                        np.memmap(x, dtype, 'r', 0, (count, dimensions))
                        for x, count in zip(paths, counts)
                    ]
                    whole = np.memmap(message[0], dtype, 'w+', 0, (sum(counts), dimensions))
                    _interleave(files, whole).flush()
                except OSError as error:  # the other ranks wait for a word
                    message[1] = str(error)
            broadcast_object_list(message)
            path, fault = message
            if fault:
                raise UserError(
                    f'the embeddings of all ranks cannot be put together: {fault}. Fix: set '
                    'collect_dir of RetrievalMetric to a folder on a disk that all machines share'
                )
        total = min(sum(counts), size)
        in_turn = [_interleave(x, np.empty(sum(map(len, x)), x[0].dtype)) for x in (labels, roles)]
        labels, roles = (torch.from_numpy(x[:total]) for x in in_turn)
        features = np.memmap(path, dtype, 'r', 0, (total, dimensions))
        in_gallery = roles if len(roles) else None
        return RetrievalFeatures(features, labels, in_gallery, similarity=similarity)


def _check_kinds(kinds: Sequence[tuple[str, int]]) -> None:
    """Check that batches have one dtype and size: a file of rows of two would be misread."""
    if len(set(kinds)) > 1:
        names = ' and '.join(f'{np.dtype(x)} of {d} dimensions' for x, d in dict.fromkeys(kinds))
        raise UserError(
            f'features are {names} in different batches, and RetrievalMetric(memory=...) keeps '
            'them in one file. Fix: let the model give features of one dtype and size'
        )


def _interleave(parts: Sequence[np.ndarray], whole: np.ndarray) -> np.ndarray:
    """Fill in a row of each part in turn, as a sampler deals samples out to ranks."""
    for rank, part in enumerate(parts):
        whole[rank :: len(parts)] = part
    return whole


def _remove(file, path: str) -> None:
    if file is not None:
        file.close()
    Path(path).unlink(missing_ok=True)
