"""Shards: packing, index, items, bad input, resume, streams."""

import json
import pickle
import re
import tarfile
from itertools import product
from pathlib import Path

import cv2
import numpy as np
import pytest
from image_shards import encoded, png_that_claims, write_tar
from mmengine.registry import DATASETS

pytest.importorskip('mmpretrain')
from dataset_converters.image_text_shards import pack_shards, read_caption_folder
from mmrank.datasets.shards.shard_index import ScannedShard, ShardSample, read_index, write_index
from mmrank.datasets.shards.tar_shard import index_tars, split_name
from mmrank.errors import UserError

TOOL = Path(__file__).parents[2] / ('tools/dataset_converters/image_text_shards.py')
PIPELINE = [dict(type='mmrank.LoadImageFromBytes')]
FILES = [dict(type='LoadImageFromFile')]


def numbered(number):
    pixels = np.full((6, 5, 3), 3 * number)
    pixels[number % 6, 0] = 255
    return encoded(pixels)


def members(numbers):
    for number in numbers:
        yield f'd/{number:04d}.png', numbered(number)
        yield f'd/{number:04d}.txt', f'caption\n {number % 7} '.encode()


@pytest.fixture
def shards(tmp_path):
    """Three shards of 4, 5 and 2 samples, and their index."""
    folder, begin = tmp_path / 'shards', 0
    for shard, size in enumerate((4, 5, 2)):
        write_tar(folder / f'{shard}.tar', members(range(begin, begin + size)))
        begin += size
    index_tars(folder)
    return folder


@pytest.fixture(scope='module')
def table(tmp_path_factory):
    """Loose files: 23 images, one or two captions each."""
    folder = tmp_path_factory.mktemp('table')
    lines = []
    for number in range(23):
        (folder / f'{number}.png').write_bytes(numbered(number))
        captions = [f'a {number % 5}', f'the {number}'][: 1 + number % 2]
        lines.append(json.dumps(dict(image=f'{number}.png', caption=captions)))
    (folder / 'train.jsonl').write_text('\n'.join(lines))
    return folder


@pytest.fixture(scope='module')
def packed(table, tmp_path_factory):
    pytest.importorskip('webdataset')
    from mmrank.datasets.captions.caption_files import read_caption_table

    out = tmp_path_factory.mktemp('packed') / 'shards'
    found = read_caption_table(table / 'train.jsonl')
    pack_shards(found, table, out, samples=6)
    return out


def build(folder, **kwargs):
    config = dict(type='mmrank.ShardedCaptions', pipeline=PIPELINE, data_root=str(folder))
    return DATASETS.build({**config, **kwargs})


def assert_same_items(found, expected):
    assert len(found) == len(expected)
    for item, other in zip(found, expected):
        for key in ('sample_idx', 'image_id', 'text_id', 'text'):
            assert item[key] == other[key]
        assert np.array_equal(item['img'], other['img'])
        assert item['img_shape'] == other['img_shape']


def test_items(shards):
    data = build(shards)
    items = [data[i] for i in range(len(data))]
    assert [x['text'] for x in items] == [f'caption {i % 7}' for i in range(11)]
    assert [x['text_id'] for x in items] == [i % 7 for i in range(11)]
    assert [x['sample_idx'] for x in items] == list(range(11))
    assert [x['image_id'] for x in items] == list(range(11))
    assert items[4]['img_path'] == '1.tar:0'
    for i, item in enumerate(items):
        whole = cv2.imdecode(np.frombuffer(numbered(i), np.uint8), cv2.IMREAD_COLOR)
        assert np.array_equal(item['img'], whole)
    assert data.shard_sizes.tolist() == [4, 5, 2]
    assert 'img_bytes' not in data.get_data_info(3)
    assert data[-1]['sample_idx'] == 10
    with pytest.raises(IndexError):
        data[11]
    # What a spawned worker gets.
    again = pickle.loads(pickle.dumps(data))
    assert len(pickle.dumps(data)) < 5000
    assert again[5]['text'] == items[5]['text']
    assert 'Shards: \t3' in repr(data)


@pytest.mark.parametrize('unit', ['pair', 'image'])
def test_packed_items_are_those_of_the_table(table, packed, unit):
    expected = DATASETS.build(
        dict(
            type='mmrank.CaptionTable',
            data_root=str(table),
            ann_file='train.jsonl',
            unit=unit,
            pipeline=FILES,
        )
    )
    assert_same_items(build(packed, unit=unit), expected)
    assert build(packed, unit=unit).shard_sizes.sum() == len(expected)


def test_webdataset_reads_what_is_packed_and_the_reverse(table, packed, tmp_path):
    wds = pytest.importorskip('webdataset')
    files = sorted(str(x) for x in packed.glob('*.tar'))
    assert len(files) == 4
    samples = list(wds.WebDataset(files, shardshuffle=False))
    assert [x['__key__'] for x in samples] == [f'{i:09d}' for i in range(23)]
    assert samples[7]['png'] == (table / '7.png').read_bytes()
    assert json.loads(samples[7]['json']) == {'caption': ['a 2', 'the 7']}
    folder = tmp_path / 'theirs'
    folder.mkdir()
    with wds.ShardWriter(str(folder / '%03d.tar'), maxcount=10, verbose=0, encoder=False) as writer:
        for sample in samples:
            writer.write({k: v for k, v in sample.items() if k[:5] != '__url'})
    index_tars(folder, 'json:caption')
    assert_same_items(build(folder), build(packed))


def test_packing_is_reproducible_and_shuffles(table, packed, tmp_path):
    from mmrank.datasets.captions.caption_files import read_caption_table

    found = read_caption_table(table / 'train.jsonl')
    same = pack_shards(found, table, tmp_path / 'a', samples=6)
    for path in packed.glob('*.tar'):
        assert path.read_bytes() == (tmp_path / 'a' / path.name).read_bytes()
    assert same.digest == read_index(packed / 'mmrank_index').digest
    mixed = pack_shards(found, table, tmp_path / 'b', samples=6, seed=0)
    assert mixed.digest != same.digest
    texts = [x['text'] for x in build(tmp_path / 'b', unit='image')]
    plain = [x['text'] for x in build(packed, unit='image')]
    assert sorted(texts) == sorted(plain)
    assert texts != plain


def test_tool_packs_a_folder(run_script, tmp_path):
    pytest.importorskip('webdataset')
    folder = tmp_path / 'in' / 'x'
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f'{number}.png').write_bytes(numbered(number))
        (folder / f'{number}.txt').write_text(f'a {number}\n')
    status, text, _ = run_script(TOOL, 'pack', tmp_path / 'in', tmp_path / 'out', '--samples', 2)
    assert status == 0
    assert '3 samples with 3 captions in 2 shards' in text
    assert [x['text'] for x in build(tmp_path / 'out')] == ['a 0', 'a 1', 'a 2']
    status, _, error = run_script(TOOL, 'pack', tmp_path / 'in', tmp_path / 'out')
    assert status == 2
    assert 'shards of two data sets must not mix' in error
    (folder / '1.txt').unlink()
    with pytest.raises(UserError, match='x/1.png: no file 1.txt'):
        read_caption_folder(tmp_path / 'in').raise_if_bad()
    (folder / '1.txt').write_text(' \n')
    status, _, error = run_script(TOOL, 'pack', tmp_path / 'in', tmp_path / 'new')
    assert status == 2
    assert 'no caption in 1.txt' in error
    assert error.count('error:') == 1
    (folder / '1.txt').write_text('a 1')
    (folder / '1.png').write_bytes(b'nothing')
    status, _, error = run_script(TOOL, 'pack', tmp_path / 'in', tmp_path / 'new')
    assert status == 2
    assert 'is not an image' in error
    assert not (tmp_path / 'new').exists()


BAD = {
    'no caption': ([('a.png', b'x')], 'has no caption: no member txt'),
    'empty caption': ([('a.png', b'x'), ('a.txt', b' \n')], 'has no caption: txt is empty'),
    'binary caption': (
        [('a.png', b'x'), ('a.txt', b'\xff')],
        'has no caption: txt is empty or no text',
    ),
    'no image': ([('a.txt', b'x')], 'has 0 images'),
    'two images': ([('a.png', b'x'), ('a.jpg', b'x'), ('a.txt', b'x')], 'has 2 images'),
    'key twice': ([*members([1, 2]), *members([1])], "the key 'd/0001' twice"),
    'member twice': (
        [('a.png', b'x'), ('a.txt', b'x'), ('a.txt', b'x')],
        "the key 'a' twice: two members txt",
    ),
    'nothing': ([], 'there is no sample in 1 shards'),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_samples_are_named(tmp_path, name):
    content, message = BAD[name]
    write_tar(tmp_path / '0.tar', content)
    with pytest.raises(UserError, match=message) as caught:
        index_tars(tmp_path)
    assert 'Fix: ' in str(caught.value)
    assert not (tmp_path / 'mmrank_index').exists()


def test_other_members_are_passed_over(tmp_path):
    content = [
        ('__meta__.json', b'{}'),
        ('README', b'x'),
        *members([0]),
        ('d/0000.json', b'{}'),
        *members([1]),
    ]
    write_tar(tmp_path / '0.tar', content)
    assert len(index_tars(tmp_path)) == 2


def test_damaged_shards(tmp_path, shards):
    whole = (shards / '1.tar').read_bytes()
    last = whole.rindex(b'caption')
    for size in (len(whole) // 2, last + 3, last + 512 - last % 512, 700, 0):
        write = tmp_path / 'cut' / '0.tar'
        write.parent.mkdir(exist_ok=True)
        write.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r'damaged|cut off|no sample'):
            index_tars(write.parent)
    # A file that got its size first, and its content up to somewhere.
    for size in range(512, 20 * 512, 512):
        write.write_bytes(whole[:size].ljust(len(whole), b'\0'))
        with pytest.raises(UserError, match=r'damaged|cut off|has no caption|0 images'):
            index_tars(write.parent)
    # tarfile ends at a damaged header as at the end of the archive.
    with tarfile.open(shards / '1.tar') as tar:
        headers = [info.offset for info in tar][1:]
    flips = (bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]) for at in headers)
    cuts = (whole[: at + 511] for at in headers)
    hole = whole[: headers[2]] + bytes(headers[3] - headers[2]) + whole[headers[3] :]
    for content in (*flips, *cuts, hole, whole + whole):
        (tmp_path / 'cut' / '0.tar').write_bytes(content)
        with pytest.raises(UserError, match=r'0.tar is (damaged|cut off).*Fix: '):
            index_tars(tmp_path / 'cut')
    # tar fills its last record with zeros; more of them is a file that got its size first.
    (tmp_path / 'cut' / '0.tar').write_bytes(whole + bytes(1 << 21))
    with pytest.raises(UserError, match='holds zeros alone. Fix: '):
        index_tars(tmp_path / 'cut')
    (tmp_path / 'cut' / '0.tar').write_bytes(whole)
    assert len(index_tars(tmp_path / 'cut')) == 5
    (tmp_path / 'cut' / '0.tar').rename(tmp_path / 'cut' / '0.tar.gz')
    with pytest.raises(UserError, match='only compressed ones'):
        index_tars(tmp_path / 'cut')


def test_shards_are_compared_with_their_index(shards, tmp_path):
    path = shards / '1.tar'
    old = path.read_bytes()
    path.write_bytes(old)  # another time, the same samples
    build(shards)
    changed = old.replace(b'caption\n 5', b'another  5')
    assert len(changed) == len(old)
    path.write_bytes(changed)
    with pytest.raises(UserError, match='1.tar has changed since'):
        build(shards)
    write_tar(path, members(range(3)))
    with pytest.raises(UserError, match='1.tar has changed since'):
        build(shards)
    path.unlink()
    with pytest.raises(UserError, match='1.tar is missing'):
        build(shards)
    path.write_bytes(old)
    (shards / '9.tar').write_bytes(old)
    with pytest.raises(UserError, match='that its index does not have'):
        build(shards)
    (shards / '9.tar').unlink()
    data = build(shards)
    path.write_bytes(changed[:2000])  # while the training runs
    with pytest.raises(UserError, match='has changed since'):
        list(map(data.__getitem__, range(len(data))))


def test_index_that_is_absent_or_damaged(shards, tmp_path):
    with pytest.raises(UserError, match='holds no index of the samples'):
        build(tmp_path / 'nowhere')
    index = shards / 'mmrank_index'
    np.save(index / 'keys.npy', np.zeros(3, np.uint64))
    with pytest.raises(UserError, match='different lengths'):
        build(shards)
    (index / 'keys.npy').write_bytes(b'')
    with pytest.raises(UserError, match='is damaged'):
        build(shards)
    (index / 'index.json').write_text('{"format": 0}')
    with pytest.raises(UserError, match='it has format 0'):
        build(shards)
    other = [(ScannedShard('0', [ShardSample('a', ['b'])]), {})]
    write_index(tmp_path / 'other', dict(kind='stream'), other)
    with pytest.raises(UserError, match="is an index of kind 'stream'"):
        build(shards, index=str(tmp_path / 'other'))
    with pytest.raises(ValueError, match='unit=.* is unknown'):
        build(shards, unit='caption')


def test_nothing_but_an_index_is_replaced(shards, tmp_path, run_script):
    folder = tmp_path / 'mine'
    folder.mkdir()
    assert len(index_tars(shards, index=folder)) == 11
    before = sorted(path.name for path in folder.iterdir())
    (folder / 'notes').mkdir()
    (folder / 'notes' / 'a.txt').write_text('mine')
    status, _, error = run_script(TOOL, 'index', shards, '--out', folder)
    assert status == 2
    assert "it holds 'notes', which would be lost" in error
    assert (folder / 'notes' / 'a.txt').read_text() == 'mine'
    with pytest.raises(UserError, match='is not an index of samples'):
        index_tars(shards, index=shards)
    with pytest.raises(UserError, match='is not an index of samples'):
        index_tars(shards, index=folder / 'notes' / 'a.txt')
    write_index(tmp_path / 'other', {}, [(ScannedShard('0', [ShardSample('a', ['b'])]), {})])
    status, _, error = run_script(TOOL, 'index', shards, '--out', tmp_path / 'other')
    assert status == 2
    assert 'is the index of other shards, such as 0' in error
    assert len(list(shards.glob('*.tar'))) == 3
    (folder / 'notes' / 'a.txt').unlink()
    (folder / 'notes').rmdir()
    assert len(index_tars(shards, index=folder)) == 11
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize('kind', [b'x', b'g', b'L', b'K', b'S', b'0'])
@pytest.mark.parametrize('size', [-(10**6), -512, 3, 1 << 40, 1 << 80])
def test_headers_of_nonsense(tmp_path, kind, size):
    """Python raises a ValueError, an OSError, a MemoryError, an OverflowError."""
    info = tarfile.TarInfo('b.txt')
    info.type = kind
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = bytes([0o377 if size < 0 else 0o200]) + (size % 256**11).to_bytes(11, 'big')
    header[148:156] = b' ' * 8
    header[148:156] = b'%06o\0 ' % sum(header)
    (tmp_path / '0.tar').write_bytes(header + b'30 GNU.sparse.map=1,x\n'.ljust(2048, b'\0'))
    with pytest.raises(UserError, match=r'0\.tar.* (damaged|cut off|0 images).*Fix: '):
        index_tars(tmp_path)


def test_a_caption_of_gigabytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr('mmrank.datasets.shards.tar_shard._LONGEST', 3)
    write_tar(tmp_path / '0.tar', [('a.png', numbered(0)), ('a.txt', b'four')])
    with pytest.raises(UserError, match='has a caption of 4 bytes, more than 3'):
        index_tars(tmp_path)


def test_image_that_is_none(shards, tmp_path):
    write_tar(tmp_path / '0.tar', [('a.png', b'none'), ('a.txt', b'a')])
    index_tars(tmp_path)
    with pytest.raises(UserError, match=r'image 0.tar:0 .* cannot be decoded'):
        build(tmp_path)[0]
    # 400 million pixels by its header: 1.2 GB to decode.
    large = png_that_claims(20_000, 20_000)
    write_tar(tmp_path / 'large' / '0.tar', [('a.png', large), ('a.txt', b'a')])
    index_tars(tmp_path / 'large')
    with pytest.raises(UserError, match=r'image 0.tar:0 .* cannot be decoded: .*exceeds limit'):
        build(tmp_path / 'large')[0]


def test_names_of_members():
    """As webdataset's expression has it, which takes an hour for the last one."""
    expression = re.compile(r'((?:.*/|)[^.]+)[.]([^/]*)')
    pieces = ['a', '.', '/', 'b.c', '..', 'd']
    names = [''.join(x) for n in range(1, 6) for x in product(pieces, repeat=n)]
    names = [name for name in names if not name.endswith('/') and len(name) < 99]
    for name in names:
        expected = expression.fullmatch(name)
        found = split_name(name)
        assert found == (expected and expected.groups()), name
    assert split_name('./' * 500_000 + 'a.png') == ('./' * 500_000 + 'a', 'png')


def test_number_of_texts_is_by_first_mention(tmp_path):
    captions = [['b', 'a'], ['a'], ['c', 'b', 'd']]
    samples = [ShardSample(str(i), x) for i, x in enumerate(captions)]
    index = write_index(tmp_path / 'index', {}, [(ScannedShard('0', samples), {})])
    assert index.text_ids.tolist() == [0, 1, 1, 2, 0, 3]
    assert index.first_texts.tolist() == [0, 2, 3, 6]
