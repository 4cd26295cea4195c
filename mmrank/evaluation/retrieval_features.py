"""Embeddings of a test set with labels and image files, kept in a file."""

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.files import replace_atomically
from mmrank.functional import StoredEmbeddings

# What NumPy raises for text, half a file, an empty one and an .npy array.
_NO_NPZ = (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile)


@dataclass(frozen=True)
class RetrievalFeatures:
    """What a retrieval is computed from.

    Attributes:
        features: (N, D) float embeddings: a tensor, or mapped from a file.
        labels: (N,) int64 class indices.
        in_gallery: (N,) bool, True for the gallery and False for queries;
            None when every sample is both and searches all others.
        paths: Image file of each sample, where known.
        classes: Class names by index, where known.
        similarity: ``'cosine'`` or ``'dot'``.
    """

    features: Tensor | np.memmap
    labels: Tensor
    in_gallery: Tensor | None = None
    paths: Sequence[str] | None = None
    classes: Sequence[str] | None = None
    similarity: str = 'cosine'

    def rows_of_queries(self) -> Tensor:
        """Rows of the queries, (Q,) int64."""
        if self.in_gallery is None:
            return torch.arange(len(self.labels), device=self.labels.device)
        return self.in_gallery.logical_not().nonzero()[:, 0]

    def rows_of_gallery(self) -> Tensor:
        """Rows of the gallery, (G,) int64."""
        if self.in_gallery is None:
            return self.rows_of_queries()
        return self.in_gallery.nonzero()[:, 0]

    def to(self, device: str | torch.device) -> 'RetrievalFeatures':
        """The same on another device; on the CPU if they are in a file."""
        mask, features = self.in_gallery, self.features
        if isinstance(features, np.memmap):
            device = 'cpu'
        else:
            features = features.to(device)
        return replace(
            self,
            features=features,
            labels=self.labels.to(device),
            in_gallery=None if mask is None else mask.to(device),
        )

    def embeddings(self, rows: Tensor | None = None) -> Tensor | StoredEmbeddings:
        """All embeddings, or some rows of them; those of a file stay there."""
        if isinstance(self.features, np.memmap):
            return StoredEmbeddings(self.features, rows)
        return self.features if rows is None else self.features[rows]

    def gallery_embeddings(self) -> Tensor | StoredEmbeddings:
        """Embeddings of the gallery."""
        if self.in_gallery is None:
            return self.embeddings()
        return self.embeddings(self.rows_of_gallery())

    def sets(self) -> tuple[Tensor | StoredEmbeddings, ...]:
        """First arguments of ``retrieval_metrics``."""
        if self.in_gallery is None:
            return self.embeddings(), self.labels
        queries, gallery = self.rows_of_queries(), self.rows_of_gallery()
        return (
            self.embeddings(queries),
            self.labels[queries],
            self.embeddings(gallery),
            self.labels[gallery],
        )


def save_features(features: RetrievalFeatures, path: str | os.PathLike) -> Path:
    """Write an ``.npz`` file atomically.

    Args:
        features: Embeddings of any float dtype but bfloat16, which NumPy
            does not know.
        path: File; its folder is made if needed.

    Returns:
        ``path``.
    """
    arrays = {
        'features': (
            features.features
            if isinstance(features.features, np.memmap)
            else features.features.detach().cpu().numpy()
        ),
        'labels': features.labels.cpu().numpy(),
        'similarity': np.array(features.similarity),
    }
    if features.in_gallery is not None:
        arrays['in_gallery'] = features.in_gallery.cpu().numpy()
    for name in ('paths', 'classes'):
        values = getattr(features, name)
        if values is not None:
            arrays[name] = np.array(list(values), dtype=np.str_)
    with replace_atomically(path) as temporary, open(temporary, 'wb') as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    return Path(path)


def load_features(path: str | os.PathLike, stored: bool = False) -> RetrievalFeatures:
    """Read a file of ``RetrievalMetric(out_file=...)``.

    Args:
        path: ``.npz`` file with the arrays ``features`` and ``labels``, and ``in_gallery``,
            ``paths``, ``classes`` and ``similarity`` where they are known.
        stored: Leave the embeddings in the file, for galleries larger than
            the memory.

    Returns:
        Its content, on the CPU.

    Raises:
        UserError: If there is no such file, it is none of these, or its
            arrays do not fit together.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(
            f'feature file {str(path)!r} does not exist. Fix: write one with '
            "RetrievalMetric(out_file='features.npz')."
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if not stored or name != 'features'}
        if stored:
            arrays['features'] = _map_features(path)
    except _NO_NPZ as error:
        raise UserError(
            f'{path} is not an .npz file of features: {error}. Fix: write one '
            "with RetrievalMetric(out_file='features.npz')."
        ) from error
    for name, kinds in (('features', 'f'), ('labels', 'iu')):
        if name not in arrays or arrays[name].dtype.kind not in kinds:
            found = {k: str(v.dtype) for k, v in arrays.items()}
            raise UserError(
                f'{path} has no array {name!r} of '
                f'{"floats" if kinds == "f" else "integers"}, only {found}. '
                "Fix: write it with RetrievalMetric(out_file='features.npz')."
            )
    samples = len(arrays['features'])
    for name in ('labels', 'in_gallery', 'paths'):
        if name in arrays and arrays[name].shape != (samples,):
            raise UserError(
                f'{path}: {name!r} has the shape {arrays[name].shape}, but '
                f"'features' holds {samples} samples. Fix: write one entry "
                'per sample.'
            )
    return RetrievalFeatures(
        features=(arrays['features'] if stored else torch.from_numpy(arrays['features'])),
        labels=torch.from_numpy(arrays['labels'].astype(np.int64)),
        in_gallery=(
            torch.from_numpy(arrays['in_gallery'].astype(bool)) if 'in_gallery' in arrays else None
        ),
        paths=arrays['paths'].tolist() if 'paths' in arrays else None,
        classes=arrays['classes'].tolist() if 'classes' in arrays else None,
        similarity=str(arrays.get('similarity', 'cosine')),
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
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read(file)
        if is_fortran:
            raise ValueError('its array is in the order of Fortran')
        return np.memmap(path, dtype, 'r', file.tell(), shape)
