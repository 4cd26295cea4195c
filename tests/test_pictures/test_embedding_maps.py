"""Maps of embeddings."""

import re

import numpy as np
import pytest
import torch

from mmrank.evaluation.retrieval_features import RetrievalFeatures, save_features
from mmrank.pictures.embedding_maps import choose_samples

TOOL = 'analysis_tools/embedding_map'


def test_chosen_samples_are_those_of_the_largest_classes():
    labels = np.repeat([4, 1, 7, 2], [5, 109, 2, 107])
    rows = choose_samples(labels, 2)
    assert (np.diff(rows) > 0).all()
    found, counts = np.unique(labels[rows], return_counts=True)
    assert found.tolist() == [1, 2]
    assert counts.tolist() == [100, 100]
    assert rows.tolist() == choose_samples(labels, 2).tolist()


def write(path, noise, samples=120):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(samples) % 3
    features = torch.eye(3)[labels].repeat(1, 2) + noise * torch.randn(samples, 6, generator=g)
    return save_features(RetrievalFeatures(features, labels, classes=('ant', 'bee', 'cow')), path)


def test_tool(tmp_path, run):
    pytest.importorskip('sklearn')
    good = write(tmp_path / 'good.npz', 0.05)
    noise = write(tmp_path / 'noise.npz', 5.0)
    out = tmp_path / 'map.png'
    text = run(TOOL, f'AP={good}', f'SmoothAP={noise}', '--out', out)
    assert out.stat().st_size > 5_000
    found = re.findall(r'(\w+): of 120 .* ([\d.]+) % have .* ([\d.]+) %', text)
    purity = {name: (float(a), float(b)) for name, a, b in found}
    assert purity['AP'][0] == 100
    assert purity['AP'][1] > 95
    assert purity['SmoothAP'][0] < 70
    few = write(tmp_path / 'few.npz', 0.05, samples=60)
    error = run(TOOL, few, '--out', out, status=2)
    assert '60 samples are too few' in error
    assert 'Fix:' in error
