"""The histogram of images per class."""

import numpy as np
import pytest

from research.retrieval import maps as class_count_histogram
from research.retrieval.maps import plot_class_counts


@pytest.mark.parametrize('largest', [1, 2, 7, 40, 41, 1000, 99_999])
def test_every_number_falls_into_one_bar(largest):
    edges = class_count_histogram._edges(largest)
    sizes = np.arange(1, largest + 1)
    counted, _ = np.histogram(sizes, bins=edges)
    assert counted.sum() == largest
    assert (counted > 0).all()
    assert len(edges) < 120


@pytest.mark.parametrize(
    'histograms',
    [{'train': {2: 5, 3: 1}, 'test': {9: 4}}, {'train': {1: 3, 800: 1}}, {'train': {}}, {}],
)
def test_a_picture_is_written(tmp_path, histograms):
    path = plot_class_counts(histograms, tmp_path / 'new' / 'counts.png')
    assert path.read_bytes().startswith(b'\x89PNG')
