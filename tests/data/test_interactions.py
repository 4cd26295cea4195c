"""Readers of interactions and the data sets made of them."""

import gzip
import tracemalloc

import numpy as np
import pytest
import torch

from mmrank.datasets import InteractionDataset, TopKDataset
from mmrank.datasets.interactions import interaction_dataset
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.pair_files import read_csv, read_xmc
from mmrank.registry import DATASETS, FUNCTIONS

RATINGS = '1::10::5::99\n1::20::3::99\n2::10::4::98\n3::30::1::97\n'
XMC = '4 6 3\n0,2 0:1.5 3:2\n 1:1\n2 5:-1\n1,0 \n'


def write(folder, text, name='pairs.csv'):
    path = folder / name
    if name.endswith('.gz'):
        with gzip.open(path, 'wt') as file:
            file.write(text)
    else:
        path.write_text(text)
    return path


def named(pairs):
    """Pairs by the names of their entities."""
    return {(pairs.row_names[i], pairs.col_names[j]) for i, j in zip(pairs.rows, pairs.cols)}


@pytest.mark.parametrize('name', ['pairs.csv', 'pairs.csv.gz'])
@pytest.mark.parametrize('header', ['', 'user,item\n', 'User_ID,Item\n'])
def test_csv(tmp_path, name, header):
    path = write(tmp_path, header + 'b,x\na,"y,1"\nb,z\n\n', name)
    pairs = read_csv(path)
    assert named(pairs) == {('b', 'x'), ('a', 'y,1'), ('b', 'z')}
    assert pairs.shape == (2, 3)
    assert pairs.row_names == ['b', 'a']
    repeated = read_csv(write(tmp_path, 'a,x\nb,y\na,x\n'))
    assert (len(repeated), repeated.num_repeated) == (2, 1)
    path = write(tmp_path, 'timestamp,item,rating,user\n9,x,1,a\n9,y,5,a\n')
    assert named(read_csv(path, min_rating=4)) == {('a', 'y')}


def test_movielens_keeps_ratings_of_four_and_more(tmp_path):
    path = write(tmp_path, RATINGS, 'ratings.dat')
    dataset = InteractionDataset(path, file_format='movielens')
    assert named(dataset.interactions) == {('1', '10'), ('2', '10')}
    # Users and items with low ratings only have no number.
    assert dataset.interactions.shape == (2, 1)


def test_vocabulary(tmp_path):
    train = read_csv(write(tmp_path, 'a,x\nb,y\n'))
    test = read_csv(write(tmp_path, 'b,x\nc,x\na,z\n', 'test.csv'), vocabulary=train)
    assert named(test) == {('b', 'x')}
    assert (test.rows.tolist(), test.cols.tolist()) == ([1], [0])
    assert test.num_unknown == 2
    assert test.shape == (2, 2)


def test_memory_is_a_few_bytes_a_pair(tmp_path):
    n = 30_000
    lines = (f'{i % 700},{i // 700}\n' for i in range(n))
    path = write(tmp_path, ''.join(lines))
    tracemalloc.start()
    pairs = read_csv(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pairs) == n
    # 24 bytes a pair stay, the rest is for sorting; the text is 20 bytes a line, and a line in
    # Python's lists a few hundred.
    assert peak < 64 * n + 2e6


def test_xmc(tmp_path):
    pairs = read_xmc(write(tmp_path, XMC, 'train.txt'))
    assert named(pairs) == {('2', '0'), ('2', '2'), ('4', '2'), ('5', '1'), ('5', '0')}
    features = pairs.row_features
    assert features.shape[1] == 6
    assert features.indptr.tolist() == [0, 2, 3, 3]
    assert features.indices.tolist() == [0, 3, 5]
    assert features.data.tolist() == [1.5, 2, -1]
    taken = features[np.array([1, 0, 2])]
    assert taken.indptr.tolist() == [0, 1, 3, 3]
    assert taken.indices.tolist() == [5, 0, 3]
    from_1 = read_xmc(write(tmp_path, '1 1:1\n'), one_based=True)
    assert from_1.row_features.indices.tolist() == [0]


def test_xmc_test_file(tmp_path):
    train = read_xmc(write(tmp_path, XMC, 'train.txt'))
    text = '2,7 0:1 3:2 9:1\n9 0:1\n0 2:1\n'
    test = read_xmc(write(tmp_path, text, 'test.txt'), train)
    assert named(test) == {('1', '2'), ('3', '0')}
    assert test.num_unknown == 2
    assert test.row_features.indices.tolist() == [0, 3, 2]
    assert test.row_features.shape[1] == 6
    write(tmp_path, '2 0:1 3:2\n0 2:1\n', 'test.txt')
    dataset = TopKDataset(tmp_path / 'test.txt', tmp_path / 'train.txt', file_format='xmc')
    batch = dataset.__getitems__([1, 0])
    assert batch['left']['indices'].tolist() == [2, 0, 3]
    assert batch['left']['starts'].tolist() == [0, 1, 3]
    assert not len(batch['seen']['rows'])


def test_is_positive_equals_the_matrix():
    labels = np.random.default_rng(0).random((7, 5)) < 0.3
    rows, cols = labels.nonzero()
    order = np.random.default_rng(1).permutation(len(rows))
    pairs = Interactions(rows[order], cols[order], list('abcdefg'), list('abcde'))
    found = pairs.is_positive(np.arange(7)[:, None], np.arange(5))
    np.testing.assert_array_equal(found, labels)
    starts = pairs.row_starts
    np.testing.assert_array_equal(np.diff(starts), labels.sum(1))


def test_batches_of_pairs(tmp_path):
    path = write(tmp_path, 'a,x\na,y\nb,x\nc,z\n')
    dataset = InteractionDataset(path)
    assert len(dataset) == 4
    collate = FUNCTIONS.get('mmrank.pair_collate')
    with pytest.raises(TypeError, match='without a wrapper'):
        collate([{}])
    batch = collate(dataset.__getitems__([3, 0, 1]))
    assert batch['rows'].tolist() == [2, 0, 0]
    assert batch['cols'].tolist() == [2, 0, 1]
    for side, of in (('left', 'rows'), ('right', 'cols')):
        ids = batch[side]['ids']
        assert len(ids) == len(ids.unique())
        torch.testing.assert_close(ids[batch[f'{side}_index']], batch[of])
    sogram = InteractionDataset(path, 'sogram').__getitems__([3, 0, 1, 2])
    assert sogram['rows'].tolist() == [2, 0]
    assert sogram['cols'].tolist() == [2, 0, 1, 0]


def test_top_k_batches(tmp_path, monkeypatch):
    train = write(tmp_path, 'a,x\na,y\nb,x\nc,z\n')
    test = write(tmp_path, 'c,x\na,z\nc,y\n', 'test.csv')
    dataset = DATASETS.build(dict(type='mmrank.TopKDataset', ann_file=test, train_ann_file=train))
    assert isinstance(dataset, TopKDataset)
    assert len(dataset) == 2
    batch = dataset.__getitems__([1, 0])
    assert batch['left']['ids'].tolist() == [2, 0]
    assert batch['num_right'] == 3
    assert batch['true']['rows'].tolist() == [0, 0, 1]
    assert batch['true']['cols'].tolist() == [0, 1, 2]
    assert batch['seen']['rows'].tolist() == [0, 1, 1]
    assert batch['seen']['cols'].tolist() == [2, 0, 1]
    write(tmp_path, 'a,z\nd,x\n', 'test.csv')
    # Where a log goes depends on the runners that were built before.
    lines = []
    monkeypatch.setattr(interaction_dataset, 'print_log', lambda text, **_: lines.append(text))
    assert len(TopKDataset(test, train)) == 1
    assert '1 pairs are left out' in lines[0]
    write(tmp_path, 'a,x\n', 'test.csv')
    with pytest.raises(ValueError, match=r'\(a, x\)'):
        TopKDataset(test, train)


@pytest.mark.parametrize(
    ('setting', 'message'),
    [
        (dict(sampling='all'), "sampling='all'"),
        (dict(file_format='json'), "file_format='json'"),
        (dict(one_based=True), 'one_based'),
        (dict(file_format='xmc', min_rating=4), 'min_rating'),
    ],
)
def test_bad_setting(tmp_path, setting, message):
    with pytest.raises((TypeError, ValueError), match=message):
        InteractionDataset(write(tmp_path, 'a,x\n'), **setting)
