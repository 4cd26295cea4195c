"""Embeddings of a test set with labels and image files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.files import replace_atomically

#: Kinds of NumPy, dimensions and contents of the arrays of a file.
_ARRAYS = {
    'features': ('f', 2, 'floats, (N, D)'),
    'labels': ('iu', 1, 'integers'),
    'in_gallery': ('b', 1, 'bool'),
    'paths': ('U', 1, 'texts'),
    'classes': ('U', 1, 'texts'),
}


@dataclass(frozen=True)
class RetrievalFeatures:
    """Input of a retrieval: (N, D) float embeddings.

    ``labels`` are (N,) int64 class indices. ``in_gallery`` is (N,) bool, False for queries; None
    when every sample is both and searches all others. ``classes`` are names by index; these and the
    image ``paths`` are None where not known.
    """

    features: Tensor
    labels: Tensor
    in_gallery: Tensor | None = None
    paths: Sequence[str] | None = None
    classes: Sequence[str] | None = None
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
        return self._every() if self.in_gallery is None else (~self.in_gallery).nonzero()[:, 0]

    def rows_of_gallery(self) -> Tensor:
        """Rows of the gallery, (G,) int64."""
        return self._every() if self.in_gallery is None else self.in_gallery.nonzero()[:, 0]

    def _every(self) -> Tensor:
        return torch.arange(len(self.labels), device=self.labels.device)

    def to(self, device: str | torch.device) -> 'RetrievalFeatures':
        """The same on another device."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **{name: x.to(device) for name, x in tensors.items()})

    def gallery_embeddings(self) -> Tensor:
        return self.features if self.in_gallery is None else self.features[self.rows_of_gallery()]

    def sets(self) -> tuple[Tensor, ...]:
        """First arguments of ``retrieval_metrics``."""
        if self.in_gallery is None and self.is_query is None:
            return self.features, self.labels
        parts = self.rows_of_queries(), self.rows_of_gallery()
        return tuple(x for rows in parts for x in (self.features[rows], self.labels[rows]))

    def left_out(self) -> Tensor | tuple[Tensor, Tensor] | None:
        """The argument ``leave_out`` of ``retrieval_metrics`` that goes with :meth:`sets`."""
        if self.in_gallery is None and self.is_query is None:
            return self.ids
        ids = self.ids
        if ids is None and self.is_query is not None:
            # A query that is in the gallery leaves itself out.
            ids = self._every()
        return None if ids is None else (ids[self.rows_of_queries()], ids[self.rows_of_gallery()])


def save_features(features: RetrievalFeatures, path: str | os.PathLike) -> Path:
    """Write an ``.npz`` file atomically; its folder is made if needed.

    Embeddings are of any float dtype but bfloat16, which NumPy does not know.
    """
    arrays = {}
    for name in ('features', 'labels', 'in_gallery'):
        value = getattr(features, name)
        if value is not None:
            arrays[name] = value.detach().cpu().numpy()
    for name in ('paths', 'classes'):
        if getattr(features, name) is not None:
            arrays[name] = np.array(list(getattr(features, name)), dtype=np.str_)
    with replace_atomically(path) as temporary, open(temporary, 'wb') as file:
        np.savez(file, **arrays)
    return Path(path)


def load_features(path: str | os.PathLike) -> RetrievalFeatures:
    """Read an ``.npz`` file of ``RetrievalMetric(out_file=...)``, to the CPU."""
    path = Path(path)
    fix = "Fix: write one with RetrievalMetric(out_file='features.npz')."
    if not path.is_file():
        raise UserError(f'feature file {str(path)!r} does not exist. {fix}')
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
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
    features = arrays['features']
    if not features.dtype.isnative or features.dtype.itemsize > 8:
        raise UserError(f"{path}: 'features' are {features.dtype.str}. Fix: write them as float32")
    samples = len(features)
    for name in ('labels', 'in_gallery', 'paths'):
        if name in arrays and arrays[name].shape != (samples,):
            raise UserError(
                f"{path}: {name!r} has the shape {arrays[name].shape}, but 'features' holds "
                f'{samples} samples. Fix: write one entry per sample.'
            )
    return RetrievalFeatures(
        features=torch.from_numpy(features),
        labels=torch.from_numpy(arrays['labels'].astype(np.int64)),
        in_gallery=torch.from_numpy(arrays['in_gallery']) if 'in_gallery' in arrays else None,
        paths=arrays['paths'].tolist() if 'paths' in arrays else None,
        classes=arrays['classes'].tolist() if 'classes' in arrays else None,
    )
