"""A t-SNE map of the embeddings of a data set."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.imports import required_package
from mmrank.pictures.figures import new_panels, save, shorten
from mmrank.pictures.palette import colour

#: More names than this make no readable legend.
_NAMED_CLASSES = 20
#: Samples of a class on a map, at most, and neighbours that count there.
_PER_CLASS = 100
_PERPLEXITY = 30


class _EmbeddingMap(NamedTuple):
    name: str  # Of the model
    places: np.ndarray  # (n, 2) floats
    labels: np.ndarray  # (n,) class indices
    # Share of samples whose nearest neighbour by cosine, among the samples of the map, is of their
    # class, in percent
    purity: float
    map_purity: float  # The same by distance on the map


def choose_samples(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Rows of 100 samples at random of each of the largest classes."""
    rng = np.random.default_rng(0)
    found, counts = np.unique(labels, return_counts=True)
    classes = found[np.argsort(-counts, kind='stable')][:num_classes]
    rows = [
        rng.permutation(np.flatnonzero(labels == label))[:_PER_CLASS] for label in sorted(classes)
    ]
    return np.sort(np.concatenate(rows))


def _neighbour_purity(distances: np.ndarray, labels: np.ndarray) -> float:
    """Percent of samples whose nearest other one is of their class."""
    distances = distances.copy()
    np.fill_diagonal(distances, np.inf)
    return float(100 * (labels[distances.argmin(1)] == labels).mean())


def make_map(name: str, features: RetrievalFeatures, rows: np.ndarray) -> _EmbeddingMap:
    """Place samples on a plane by t-SNE (van der Maaten and Hinton, 2008) of cosine distances."""
    with required_package('sklearn', 'a map of embeddings', 'pip install scikit-learn'):
        from sklearn.manifold import TSNE
        from sklearn.metrics.pairwise import cosine_distances
    if len(rows) <= 3 * _PERPLEXITY:
        what = f'{name}: {len(rows)} samples are too few'
        raise UserError(what, f'more than {3 * _PERPLEXITY}, of more classes')
    labels = features.labels.numpy()[rows]
    distances = cosine_distances(features.features.double().numpy()[rows])
    tsne = TSNE(perplexity=_PERPLEXITY, init='random', metric='precomputed', random_state=0)
    places = tsne.fit_transform(distances)
    offsets = places[:, None] - places
    return _EmbeddingMap(
        name,
        places,
        labels,
        _neighbour_purity(distances, labels),
        _neighbour_purity((offsets**2).sum(-1), labels),
    )


def plot_maps(
    maps: Sequence[_EmbeddingMap],
    path: str | os.PathLike,
    classes: Mapping[int, str] | Sequence[str] | None = None,
) -> Path:
    """Draw a panel for each model, a colour for each class."""
    figure, axes = new_panels(1, len(maps), 4.0, 4.0)
    found = sorted(set(maps[0].labels.tolist()))
    names = [str(classes[i]) if classes else f'class {i}' for i in found]
    for axis, one in zip(axes[0], maps):
        for index, (label, name) in enumerate(zip(found, names)):
            chosen = one.labels == label
            axis.scatter(
                *one.places[chosen].T,
                s=7,
                color=colour(index),
                linewidths=0,
                label=shorten(name, 20),
            )
        axis.set(xticks=[], yticks=[])
        axis.spines[['left', 'bottom']].set_visible(False)
        axis.set_title(
            f'{one.name}: {one.purity:.0f} % nearest of the class', fontsize=9, loc='left'
        )
    if len(found) <= _NAMED_CLASSES:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        place = dict(loc='outside lower center', ncols=5)
        figure.legend(handles, labels, fontsize=7, frameon=False, markerscale=2, **place)
    return save(figure, path)
