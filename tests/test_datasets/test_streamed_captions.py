"""Streams of Hugging Face `datasets`: index, items, order of reading."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gloo_processes import run_on_ranks
from image_shards import encoded, write_tar
from mmengine.registry import DATASETS
from torch.utils.data import DataLoader

pytest.importorskip('mmpretrain')
pytest.importorskip('datasets', minversion='4')
import datasets

from mmrank.datasets.samplers import ShardSampler
from mmrank.datasets.shards import stream
from mmrank.datasets.shards.stream import ShardReaders, index_stream, open_stream, rows_of
from mmrank.datasets.shards.tar_shard import index_tars
from mmrank.errors import UserError, UserImportError

TOOL = Path(__file__).parents[2] / ('tools/dataset_converters/image_text_shards.py')
SIZES = (30, 10, 50, 30)  # 120


def numbered(number):
    return encoded(np.full((4, 4, 3), number))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The same 120 samples as tar files and as Parquet files."""
    folder, first = tmp_path_factory.mktemp('stream'), 0
    for shard, size in enumerate(SIZES):
        rows = dict(image=[], text=[], name=[])
        members = []
        for number in range(first, first + size):
            key, text, image = f'{number:04d}', f'caption {number % 50}', numbered(number)
            members += [(f'{key}.png', image), (f'{key}.txt', text.encode())]
            for column, value in zip(rows, (image, [text, 'b'], key)):
                rows[column].append(value)
        first += size
        write_tar(folder / f's{shard}.tar', members)
        path = folder / f'{shard}.parquet'
        datasets.Dataset.from_dict(rows).to_parquet(path)
    index_tars(folder)
    index_stream(tar_load(folder), folder / 'tars', 'png', 'txt', '__key__')
    return folder


def tar_load(folder):
    names = [str(folder / f's{i}.tar') for i in range(len(SIZES))]
    return dict(path='webdataset', data_files=names, split='train')


def build(folder, index='tars', **kwargs):
    return DATASETS.build(dict(type='mmrank.StreamedCaptions', index=str(folder / index), **kwargs))


def test_items_are_those_of_the_shards_on_the_disk(folder):
    data = build(folder)
    local = DATASETS.build(dict(type='mmrank.ShardedCaptions', data_root=str(folder)))
    assert data.shard_sizes.tolist() == list(SIZES)
    assert (data.index.keys == local.index.keys).all()
    for number in [3, 0, 119, 45, 44, *range(120)]:
        item, other = data[number], local[number]
        for key in ('text', 'text_id', 'image_id', 'sample_idx', 'img_bytes'):
            assert item[key] == other[key]


def test_tool_indexes_parquet(folder, run_script, tmp_path):
    status, text, _ = run_script(
        TOOL,
        *('stream', tmp_path / 'index', '--path', 'parquet'),
        *('--data-files', folder / '{0..3}.parquet', '--key', 'name'),
        *('--image', 'image', '--caption', 'text'),
    )
    assert status == 0
    assert '120 samples with 240 captions in 4 shards' in text
    data = build(tmp_path, 'index')
    assert len(data) == 240
    assert data[61]['text'] == 'b'
    assert data[61]['img_bytes'] == numbered(30)
    assert data[60]['text'] == 'caption 30'
    status, _, error = run_script(
        TOOL,
        *('stream', tmp_path / 'other', '--path', 'parquet'),
        *('--data-files', folder / '{0..3}.parquet'),
        *('--image', 'image', '--caption', 'title'),
    )
    assert status == 2
    assert "no column 'title'; it has" in error


def test_shards_are_read_from_front_to_back(folder):
    """Each row once, and those of a shard in which a stretch begins twice."""
    data = build(folder)
    sampler = ShardSampler(data, batch_size=4, buffer=16, readers=2, seed=0)
    order = list(sampler)
    assert sorted(order) == list(range(120))
    assert order != sorted(order)
    for index in order:
        assert data[index]['sample_idx'] == index
    readers = data._readers
    assert readers.num_taken == 120
    assert readers.num_read <= 120 + 2 * max(SIZES)


def test_rows_asked_for_in_any_order(folder, monkeypatch):
    monkeypatch.setattr(stream, '_ALIGN', 8)
    monkeypatch.setattr(stream, 'MOST_OPEN', 2)
    opened = open_stream(tar_load(folder))
    rows = {
        (shard, number): row
        for shard in range(4)
        for number, row in enumerate(rows_of(opened, shard, ['txt']))
    }
    assert len(rows) == 120
    readers = ShardReaders(opened, ['txt'], most_kept=5)
    places = list(rows)
    for place in np.random.default_rng(0).permutation(120):
        assert readers.take(*places[place]) == rows[places[place]]
        assert len(readers._open) <= 2
        assert len(readers._kept) <= 5
    assert readers.take(1, 10) is None
    assert readers.num_read > 4 * 120  # what the warning is about


def test_a_changed_stream_is_refused(folder):
    fewer = tar_load(folder)
    fewer['data_files'] = fewer['data_files'][:3]
    with pytest.raises(UserError, match='has 3 shards, but its index'):
        build(folder, load=fewer)
    swapped = tar_load(folder)
    swapped['data_files'] = swapped['data_files'][::-1]
    data = build(folder, load=swapped)
    with pytest.raises(UserError, match='row 2 of shard 0 has another key'):
        data[2]
    with pytest.raises(UserError, match='row 20 of shard 2 is not there'):
        data[60]


def test_bad_streams(folder, tmp_path):
    with pytest.raises(UserError, match='load_dataset.* fails: '):
        open_stream(dict(path='parquet', data_files=str(tmp_path / 'no')))
    load = tar_load(folder)
    del load['split']
    with pytest.raises(UserError, match="Fix: name one: split='train'"):
        open_stream(load)
    lines = [json.dumps(dict(i='x', t=t, k='k')) for t in ('a', '')]
    (tmp_path / 'a.jsonl').write_text('\n'.join(lines))
    load = dict(path='json', data_files=str(tmp_path / 'a.jsonl'), split='train')
    with pytest.raises(UserError, match='row 1 of shard 0 has no caption'):
        index_stream(load, tmp_path / 'index', 'i', 't')
    (tmp_path / 'a.jsonl').write_text('\n'.join(lines[:1] * 2))
    with pytest.raises(UserError, match="shard 0 has the key 'k' twice"):
        index_stream(load, tmp_path / 'index', 'i', 't', 'k')
    index_stream(load, tmp_path / 'index', 'i', 't')
    with pytest.raises(UserError, match="has no image in the column 'i'"):
        build(tmp_path, 'index')[0]
    with pytest.raises(ValueError, match='keep must be at least 1'):
        build(folder, keep=0)


@pytest.mark.parametrize(('version', 'limit'), [('3.9.1', '4 or later'), ('5.0.0', 'below 5')])
def test_library_of_a_wrong_version(folder, version, limit, monkeypatch):
    monkeypatch.setattr(datasets, '__version__', version)
    message = f'datasets {limit}; {version} is installed. Fix: pip install'
    with pytest.raises(UserImportError, match=message):
        build(folder)


def _collate(items):
    return [(x['sample_idx'], x['img_bytes'] == numbered(x['sample_idx'])) for x in items]


def _seen(rank, index, skipped):
    """Samples that a rank's workers have read, in batches."""
    data = build(Path(index))
    settings = dict(batch_size=12, workers=2, parts=2, buffer=10, seed=5)
    sampler = ShardSampler(data, infinite=True, **settings)
    sampler.skip(skipped)
    loader = DataLoader(
        data,
        sampler.share,
        sampler=sampler,
        num_workers=2,
        collate_fn=_collate,
        # The ranks come from a fork server, whose children would start one.
        multiprocessing_context='fork',
    )
    found = []
    for number, batch in enumerate(loader):
        found.append(torch.tensor(batch))
        if number == 9:
            break
    return [torch.stack(found)]


@pytest.mark.slow
def test_ranks_and_workers_see_each_sample_once(folder):
    one = _seen(0, folder, 0)[0]
    ranks = [x[0] for x in run_on_ranks(_seen, 2, str(folder), 0)]
    assert torch.equal(torch.cat(ranks, 1), one)
    assert (one[..., 1] == 1).all()
    assert sorted(one[..., 0].flatten().tolist()) == list(range(120))
    resumed = [x[0] for x in run_on_ranks(_seen, 2, str(folder), 18)]
    assert torch.equal(torch.cat(resumed, 1)[:7], one[3:])
