"""How many images the classes of a data set have, as a picture."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from mmrank.visualization.palette import colour

# Up to this many images a class every number has a bar of its own.
_SINGLE_BARS = 40


def plot_class_counts(histograms: Mapping[str, Mapping[int, int]], path: str | os.PathLike) -> Path:
    """Draw a histogram for each split, one above the other.

    Args:
        histograms: By split, how many classes have a number of images, by
            that number, at least 1.
        path: Image file to write.

    Returns:
        ``path``.
    """
    figure = Figure(figsize=(6.4, 0.4 + 2.1 * max(len(histograms), 1)), layout='constrained')
    FigureCanvasAgg(figure)
    axes = figure.subplots(max(len(histograms), 1), 1, squeeze=False).ravel()
    largest = max((max(h) for h in histograms.values() if h), default=1)
    edges = _edges(largest)
    for index, (axis, (name, histogram)) in enumerate(zip(axes, histograms.items())):
        sizes = list(histogram)
        axis.hist(
            sizes,
            bins=edges,
            weights=[histogram[size] for size in sizes],
            color=colour(index),
            edgecolor='white',
            linewidth=0.5,
        )
        if largest > _SINGLE_BARS:
            axis.set_xscale('log')
            axis.xaxis.set_major_formatter(StrMethodFormatter('{x:g}'))
        else:
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlim(edges[0], edges[-1])
        axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        classes = sum(histogram.values())
        images = sum(size * n for size, n in histogram.items())
        axis.set_title(f'{name}: {classes:,} classes, {images:,} images', fontsize=9, loc='left')
        axis.set_ylabel('classes', fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[['top', 'right']].set_visible(False)
    axes[-1].set_xlabel('images in a class', fontsize=9)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _edges(largest: int) -> np.ndarray:
    """Edges of the bars, between whole numbers."""
    if largest <= _SINGLE_BARS:
        return np.arange(largest + 1) + 0.5
    steps = 3 * math.ceil(math.log2(largest))
    edges = np.unique(np.geomspace(1, largest + 1, steps).round())
    return edges - 0.5
