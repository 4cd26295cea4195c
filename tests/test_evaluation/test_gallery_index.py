"""Recall@K and nearest samples by faiss."""

import numpy as np
import pytest
import torch

from mmrank.errors import UserError
from mmrank.evaluation import gallery_index
from mmrank.evaluation.gallery_index import (
    GalleryIndex,
    _best_positive,
    index_figures,
    index_options,
    index_summary,
)
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.functional import StoredEmbeddings, nearest_in_gallery, retrieval_metrics

pytest.importorskip('faiss')


def clusters(samples=600, classes=40, gallery=False, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=g)
    labels[3] = 99  # without a positive
    x = torch.randn(classes, 8, generator=g)[labels % classes]
    x += torch.randn(samples, 8, generator=g)
    mask = torch.arange(samples) % 4 > 0 if gallery else None
    return RetrievalFeatures(x, labels, mask)


def stored(samples, path):
    np.save(path, samples.features.numpy())
    return RetrievalFeatures(np.load(path, mmap_mode='r'), samples.labels, samples.in_gallery)


@pytest.mark.parametrize('similarity', ['cosine', 'dot'])
@pytest.mark.parametrize('on_disk', [False, True])
def test_flat_finds_what_the_product_finds(similarity, on_disk, tmp_path):
    x = clusters().features
    own = torch.arange(600)
    scores, rows = nearest_in_gallery(x, x, 9, similarity=similarity, own=own)
    gallery = x
    if on_disk:
        np.save(tmp_path / 'x.npy', x.numpy())
        gallery = StoredEmbeddings(np.load(tmp_path / 'x.npy', mmap_mode='r'))
    index = GalleryIndex(gallery, similarity=similarity)
    assert not index.is_approximate
    found_scores, found = index.search(x, 9, own)
    torch.testing.assert_close(found_scores, scores)
    assert found.equal(rows)
    _, found = index.search(x[:2], 9)
    assert found[:, 0].tolist() == [0, 1] or similarity == 'dot'


@pytest.mark.parametrize('gallery', [False, True])
@pytest.mark.parametrize('on_disk', [False, True])
@pytest.mark.parametrize('probes', [None, 10**6])
def test_recall_equals_ours(gallery, on_disk, probes, tmp_path):
    samples = clusters(gallery=gallery)
    expected = retrieval_metrics(*samples.sets())
    if on_disk:
        samples = stored(samples, tmp_path / 'x.npy')
    options = {}
    if probes:  # of all cells, so that nothing is missed
        options = dict(type='ivf', lists=5, probes=5)
    index = GalleryIndex(samples.gallery_embeddings(), **options)
    got = index_figures(samples, index, 20)
    assert got.num_positives.equal(expected.num_positives)
    assert got.first_rank.equal(expected.first_rank.clamp(max=21))
    summary = index_summary(samples, index, (1, 10))
    assert summary == {
        name: value
        for name, value in expected.summary((1, 10)).items()
        if 'recall' in name or 'queries' in name
    }


def test_lists_on_disk_go_with_the_index(tmp_path, monkeypatch):
    samples = stored(clusters(), tmp_path / 'x.npy')
    index = GalleryIndex(samples.gallery_embeddings(), type='ivf')
    monkeypatch.setattr(gallery_index, '_BLOCK', 7000)
    parts = GalleryIndex(samples.gallery_embeddings(), type='ivf')
    assert len(parts._parts) == 3
    x = samples.features[:50]
    for a, b in zip(parts.search(torch.tensor(x), 7), index.search(torch.tensor(x), 7)):
        assert a.equal(b)
    assert len(list(tmp_path.glob('index-*'))) == 2
    del index, parts
    assert [p.name for p in tmp_path.iterdir()] == ['x.npy']


def test_what_is_approximate_says_so():
    samples = clusters(samples=2000, classes=200)
    expected = retrieval_metrics(*samples.sets()).summary((1, 10))
    index = GalleryIndex(samples.features, type='ivf', lists=40, probes=2)
    got = index_summary(samples, index, (1, 10))
    assert set(got) == {
        *('approximate_recall@1', 'approximate_recall@10'),
        *('neighbours_found@10', 'queries', 'queries_without_positive'),
    }
    # Missed neighbours are not found, and some are missed.
    assert 0.3 < got['neighbours_found@10'] < 0.99
    for k in (1, 10):
        assert got[f'approximate_recall@{k}'] < expected[f'recall@{k}'] + 0.02
        assert got[f'approximate_recall@{k}'] > expected[f'recall@{k}'] / 2
    more = GalleryIndex(samples.features, type='ivf', lists=40, probes=30)
    assert index_summary(samples, more, (1,))['neighbours_found@10'] > got['neighbours_found@10']


def test_ties_count_as_ours():
    # Many equal embeddings, more than are searched for at first.
    x = torch.eye(4).repeat_interleave(50, 0)
    labels = torch.arange(200) % 7
    samples = RetrievalFeatures(x, labels)
    expected = retrieval_metrics(x, labels).first_rank
    got = index_figures(samples, GalleryIndex(x), 3).first_rank
    assert got.equal(expected.clamp(max=4))
    got = index_figures(samples, GalleryIndex(x), 48).first_rank
    assert got.equal(expected.clamp(max=49))


def test_best_positive():
    scores = torch.tensor([[3.0, 2.0, 2.0, 1.0]]).repeat(4, 1)
    positive = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).bool()
    rank, is_known = _best_positive(scores, positive)
    assert rank.tolist() == [3, 4, 5, 1]
    assert is_known.tolist() == [True, False, True, True]


def test_kept_index_is_read_again(tmp_path):
    x = clusters().features
    path = tmp_path / 'x.ivf.faiss'
    first = GalleryIndex(x, type='ivf', lists=7, path=path)
    before = path.stat().st_mtime_ns
    again = GalleryIndex(x, type='ivf', lists=9, path=path)
    assert path.stat().st_mtime_ns == before
    assert again.lists == 7
    for a, b in zip(first.search(x, 5), again.search(x, 5)):
        assert a.equal(b)


@pytest.mark.parametrize('change', ['size', 'content', 'similarity'])
def test_kept_index_of_another_gallery_is_made_anew(tmp_path, change):
    x, path = clusters().features, tmp_path / 'x.ivf.faiss'
    GalleryIndex(x, type='ivf', lists=7, path=path)
    before = path.stat().st_mtime_ns
    similarity = 'dot' if change == 'similarity' else 'cosine'
    other = dict(size=x[:500], content=clusters(seed=1).features, similarity=x)[change]
    index = GalleryIndex(other, type='ivf', similarity=similarity, lists=9, probes=9, path=path)
    assert path.stat().st_mtime_ns > before
    assert index.lists == 9
    expected = nearest_in_gallery(other[:20], other, 3, similarity=similarity)
    assert index.search(other[:20], 3)[1].equal(expected[1])


@pytest.mark.parametrize('change', ['metric', 'kind', 'double', 'negative', 'beyond'])
def test_foreign_index_is_not_read(tmp_path, change):
    import faiss

    x, path = torch.nn.functional.normalize(clusters().features), tmp_path / 'x.ivf.faiss'
    metric = faiss.METRIC_L2 if change == 'metric' else faiss.METRIC_INNER_PRODUCT
    dimensions = x.shape[1]
    flat = faiss.IndexFlatIP(dimensions)
    foreign = faiss.IndexIVFFlat(flat, dimensions, 7, metric)
    foreign = flat if change == 'kind' else foreign
    ids = np.arange(len(x))
    ids[3] = dict(double=4, negative=-1, beyond=len(x)).get(change, 3)
    rows = x.numpy()
    if change == 'double':
        rows = rows.copy()
        rows[3] = rows[4]
    foreign.train(rows)
    foreign.add(rows) if change == 'kind' else foreign.add_with_ids(rows, ids)
    faiss.write_index(foreign, str(path))
    index = GalleryIndex(x, type='ivf', lists=9, probes=9, path=path)
    assert index.lists == 9
    assert index.search(x[:20], 3)[1].equal(nearest_in_gallery(x[:20], x, 3)[1])


@pytest.mark.parametrize(
    ('index', 'message'),
    [
        ('hnsw', "index is 'hnsw': set one of"),
        (dict(lists=3), 'set one of'),
        (dict(type='flat', lists=3), r"\['lists'\], which an index of type"),
        (dict(type='ivf', probe=3), r"\['probe'\]"),
        (dict(type='ivf', lists=0), 'index lists must be an int >= 1, got 0'),
        (dict(type='ivf', probes=1.5), 'index probes must be an int >= 1, got 1.5'),
    ],
)
def test_wrong_options_are_named(index, message):
    with pytest.raises(UserError, match=message):
        index_options(index)
    assert index_options('ivf') == dict(type='ivf')


def test_dot_products_beyond_float32_are_refused():
    x = 1e19 * clusters().features
    with pytest.raises(UserError, match='overflow float32.*Fix: similarity'):
        GalleryIndex(x, similarity='dot').search(x[:1], 3)
    assert GalleryIndex(x).search(x[:1], 3)[1][0, 0] == 0


def test_infinite_embeddings_are_refused():
    x = clusters().features
    x[17] = float('inf')
    with pytest.raises(ValueError, match='NaN or infinity'):
        GalleryIndex(x).search(x[:1], 3)
