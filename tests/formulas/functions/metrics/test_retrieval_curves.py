import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from retrieval_brute_force import by_dot, similarity_matrix

from mmrank.functional import nearest_in_gallery, recall_curve, retrieval_curves, retrieval_metrics


def brute_force_curve(scores, is_positive, points):
    """Interpolated precision written out; NaN without a positive."""
    total = sum(is_positive)
    if not total:
        return [np.nan] * points
    found = []
    for threshold in set(scores):
        above = [y for s, y in zip(scores, is_positive) if s >= threshold]
        found.append((sum(above), sum(above) / len(above)))
    return [
        # Recall as a fraction, so that 1/3 of 3 positives is one of them.
        max(p for n, p in found if n * (points - 1) >= k * total)
        for k in range(points)
    ]


rows = st.lists(
    st.tuples(st.tuples(*[st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0])] * 2), st.integers(0, 3)),
    min_size=1,
    max_size=20,
)


@given(rows, st.integers(2, 12), st.sampled_from([1000, 2**30]))
def test_equals_the_definition_with_ties(pairs, points, memory_limit):
    """Also of one query at a time."""
    x, labels = map(torch.tensor, zip(*pairs))
    scores = similarity_matrix(x.tolist(), x.tolist(), 'dot')
    found = by_dot(retrieval_curves, x, labels, points=points, memory_limit=memory_limit)
    curves = []
    for i, row in enumerate(scores):
        others = [j for j in range(len(scores)) if j != i]
        positive = [bool(labels[j] == labels[i]) for j in others]
        curves.append(brute_force_curve([row[j] for j in others], positive, points))
    expected = torch.tensor(curves, dtype=torch.float64).view(-1, points)
    close = dict(rtol=0, atol=1e-12, equal_nan=True)
    torch.testing.assert_close(found.precision, expected, **close)
    torch.testing.assert_close(found.mean_precision(), expected.nanmean(0), **close)


def make_set(samples=300, classes=9, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=g)
    x = torch.randn(classes, 6, generator=g)[labels]
    return (x + torch.randn(samples, 6, generator=g)).to(dtype), labels


@pytest.mark.parametrize('dtype', [torch.float16, torch.float32])
def test_figures_are_those_of_the_metrics(dtype):
    x, labels = make_set(dtype=dtype)
    gallery, gallery_labels = make_set(200, 8, 1, dtype)
    for sets in ((x, labels), (x, labels, gallery, gallery_labels)):
        got = retrieval_curves(*sets).figures
        for a, b in zip(got, retrieval_metrics(*sets)):
            assert torch.equal(a.nan_to_num(), b.nan_to_num())


def test_recall_curve_equals_the_summary():
    x, labels = make_set(60, 9)
    figures = retrieval_metrics(x, labels)
    at = list(range(1, 70))
    expected = figures.summary(at)
    assert recall_curve(figures, at) == pytest.approx([expected[f'recall@{k}'] for k in at])
    nothing = retrieval_metrics(x[:1], labels[:1])
    assert np.isnan(recall_curve(nothing, [1])).all()


@pytest.mark.parametrize('memory_limit', [32 * 170, 2**30])
@pytest.mark.parametrize('similarity', ['cosine', 'dot'])
def test_nearest_equals_a_sort(similarity, memory_limit):
    x, _ = make_set(40)
    scores = torch.tensor(similarity_matrix(x.tolist(), x.tolist(), similarity))
    own = torch.tensor([3, 39, 0])
    options = dict(similarity=similarity, memory_limit=memory_limit, own=own)
    got, found = by_dot(nearest_in_gallery, x[own], x, 7, **options)
    scores = scores[own].scatter(1, own[:, None], -9.0)
    expected = scores.sort(1, descending=True)
    assert torch.equal(found, expected.indices[:, :7])
    torch.testing.assert_close(got.double(), expected.values[:, :7], rtol=1e-5, atol=1e-5)


def test_nearest_of_ties_and_few_samples():
    x = torch.ones(4, 2)
    _, found = nearest_in_gallery(x[:2], x, 9, own=torch.tensor([0, 2]))
    assert found.tolist() == [[1, 2, 3], [0, 1, 3]]
    _, found = nearest_in_gallery(x[:1], x, 9)
    assert found.tolist() == [[0, 1, 2, 3]]
    _, found = nearest_in_gallery(x[:1], x[:0], 9)
    assert found.shape == (1, 0)
