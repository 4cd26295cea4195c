"""Figures of embeddings on disk equal those of embeddings in memory."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks

from mmrank.functional import (
    StoredEmbeddings,
    nearest_in_gallery,
    retrieval_curves,
    retrieval_metrics,
)
from mmrank.functional.metrics.retrieval import metrics, ranking


def store(x, path, rows=None):
    """Write embeddings and map them."""
    np.save(path, x.numpy())
    return StoredEmbeddings(np.load(path, mmap_mode='r'), rows)


def make_set(samples=1000, classes=60, dimensions=7, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (samples,), generator=g)
    labels[5] = 99  # without a positive
    x = torch.randn(samples, dimensions, generator=g, dtype=torch.float64)
    x[20:30] = x[30:40]  # ties across classes
    return x.to(dtype), labels


def assert_same(got, expected, **tolerance):
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, equal_nan=True, **(tolerance or dict(rtol=0, atol=1e-12)))


@pytest.fixture(params=['one block', 'many blocks'], autouse=True)
def _small_panels(request, monkeypatch):
    """One panel and block, and many."""
    if request.param == 'many blocks':
        monkeypatch.setattr(ranking, '_MOST_STREAMED', 70)
        monkeypatch.setattr(ranking, '_MOST_ROWS', 200)


@pytest.mark.parametrize('similarity', ['cosine', 'dot'])
@pytest.mark.parametrize(
    'options', [{}, dict(samples=2000, classes=20, dtype=torch.float32)], ids=['few', 'many']
)
def test_same_set(tmp_path, similarity, options):
    """Few positives are compared, many counted in bins."""
    x, labels = make_set(**options)
    expected = retrieval_metrics(x, labels, similarity=similarity)
    got = retrieval_metrics(store(x, tmp_path / 'x.npy'), labels, similarity=similarity)
    assert got.first_rank.equal(expected.first_rank)
    assert_same(got, expected)


def test_separate_sets_of_one_file(tmp_path):
    x, labels = make_set()
    of_gallery = (torch.arange(1000) % 3 > 0).nonzero()[:, 0]
    queries = (torch.arange(1000) % 3 == 0).nonzero()[:, 0]
    expected = retrieval_curves(
        *(x[queries], labels[queries], x[of_gallery], labels[of_gallery]), points=11
    )
    path = tmp_path / 'x.npy'
    got = retrieval_curves(
        *(store(x, path, queries), labels[queries]),
        *(store(x, path, of_gallery), labels[of_gallery]),
        points=11,
        scratch=str(tmp_path),
    )
    assert_same(got.figures, expected.figures)
    assert_same(got[1:], expected[1:])
    # The copies in order of class have no names, and end with the call.
    assert [p.name for p in tmp_path.iterdir()] == ['x.npy']


@pytest.mark.parametrize('limit', [600_000, 10**7])
def test_panels_and_blocks_fit_the_memory(tmp_path, monkeypatch, limit):
    x, labels = make_set(classes=100, dtype=torch.float32)
    seen = []
    scores = ranking._PanelScores.of_block

    def watched(panel, first):
        block = panel._buffer.size(1) * x.size(1)
        seen.append(4 * (panel._buffer.numel() + panel._queries.numel() + block))
        return scores(panel, first)

    monkeypatch.setattr(ranking._PanelScores, 'of_block', watched)
    got = retrieval_metrics(store(x, tmp_path / 'x.npy'), labels, memory_limit=limit)
    assert int((got.num_positives > 0).sum()) > 980
    assert max(seen) < 0.7 * limit


def test_memory_that_is_too_small(tmp_path):
    x, labels = make_set()
    stored = store(x, tmp_path / 'x.npy')
    for limit in (10_000, 120_000):
        with pytest.raises(ValueError, match=f'={limit} is too small: one'):
            retrieval_metrics(stored, labels, memory_limit=limit)


def test_wrong_input_is_named(tmp_path):
    x, labels = make_set()
    with pytest.raises(TypeError, match='numpy.memmap, got ndarray'):
        StoredEmbeddings(x.numpy())
    stored = store(x, tmp_path / 'x.npy')
    for queries, gallery in ((stored, x), (x, stored)):
        with pytest.raises(TypeError, match='both as StoredEmbeddings'):
            retrieval_metrics(queries, labels, gallery, labels)
    with pytest.raises(ValueError, match='shape .1000,., got'):
        retrieval_metrics(stored, labels[1:])
    short = store(x[:, :3], tmp_path / 'short.npy')
    with pytest.raises(ValueError, match='7 dimensions and the gallery 3'):
        retrieval_metrics(stored, labels, short, labels)
    x[123] = float('nan')
    with pytest.raises(ValueError, match=r'queries\[123\] holds NaN'):
        retrieval_metrics(store(x, tmp_path / 'nan.npy'), labels)
    with pytest.raises(ValueError, match='overflow torch.float64'):
        retrieval_metrics(
            store(x.nan_to_num(1e200), tmp_path / 'inf.npy'), labels, similarity='dot'
        )


@pytest.mark.parametrize('itself', [False, True])
def test_nearest_of_stored_embeddings(tmp_path, monkeypatch, itself):
    x, _ = make_set(samples=200)
    own = torch.arange(20, 40) if itself else None
    expected = nearest_in_gallery(x[20:40], x, 300, own=own)
    stored = store(x, tmp_path / 'x.npy')
    monkeypatch.setattr(metrics, '_BLOCK', 7 * 50)
    got = nearest_in_gallery(x[20:40], stored, 300, own=own)
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=1e-14)
    assert got[0].size(1) == 200 - itself
    for count in (1, 7):
        few = nearest_in_gallery(x[20:40], stored, count, own=own)
        torch.testing.assert_close(few[0], got[0][:, :count])
        torch.testing.assert_close(
            (x[few[1]] - x[expected[1][:, :count]]).abs().amax(), torch.tensor(0.0, dtype=x.dtype)
        )


def test_rows_and_pages(tmp_path):
    x, _ = make_set()
    stored = store(x, tmp_path / 'x.npy', torch.arange(999, -1, -3))
    assert stored.shape == (334, 7)
    assert len(stored) == 334
    rows = torch.tensor([4, 0, 333])
    assert stored.read(rows).equal(x[[987, 999, 0]])
    # A private copy keeps what was written to it.
    copy = np.load(tmp_path / 'x.npy', mmap_mode='c')
    copy[7] = 1
    private = StoredEmbeddings(copy)
    for _ in range(2):
        assert private.read(torch.tensor([7])).eq(1).all()


def _on_rank(rank, path):
    torch.set_num_threads(1)
    _x, labels = make_set()
    stored = StoredEmbeddings(np.load(path, mmap_mode='r'))
    group = dist.group.WORLD
    return list(retrieval_metrics(stored, labels, memory_limit=1_500_000, group=group))


@pytest.mark.processes
@pytest.mark.parametrize('_small_panels', ['many blocks'], indirect=True)
def test_ranks_share_the_panels(tmp_path):
    x, labels = make_set()
    store(x, tmp_path / 'x.npy')
    expected = retrieval_metrics(x, labels)
    for got in run_on_ranks(_on_rank, 2, str(tmp_path / 'x.npy')):
        assert_same(got, expected)
