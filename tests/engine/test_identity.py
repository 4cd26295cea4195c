"""What a finished run is known by: settings, and the content of all files that they name."""

import json
import os

import pytest

from mmrank.runners.identity import identity


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A config of data, an evaluator and weights, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'elsewhere/deep').mkdir(parents=True)
    (tmp_path / 'data').mkdir()
    (tmp_path / 'data/images').symlink_to(tmp_path / 'elsewhere')
    for name in ('a.png', 'deep/b.png'):
        (tmp_path / 'elsewhere' / name).write_text(name)
    images = [dict(file_name='a.png'), dict(file_name='deep/b.png')]
    (tmp_path / 'data/train.json').write_text(json.dumps(dict(images=images, box=[1, 2])))
    (tmp_path / 'val.json').write_text('{"box": [1, 2]}')
    (tmp_path / 'weights.pth').write_bytes(b'1234')
    (tmp_path / 'names.txt').write_text('cat')
    data = dict(data_root='data', ann_file='train.json', data_prefix=dict(img='images'))
    (tmp_path / 'own.py').write_text(
        f'train_dataloader = dict(dataset=dict(type="RepeatDataset", dataset=dict({data})))\n'
        'val_evaluator = [dict(ann_file="val.json", metainfo=dict(classes="names.txt"))]\n'
        'model = dict(backbone=dict(init_cfg=dict(type="Pretrained", checkpoint="weights.pth")))\n'
        'folder_of_images = dict(data_root="data")\n'
    )
    return 'own.py'


CHANGES = {
    'a box of the training': lambda x: (x / 'data/train.json').write_text('{"box": [1, 3]}'),
    'a box of the evaluator': lambda x: (x / 'val.json').write_text('{"box": [1, 3]}'),
    'names of classes': lambda x: (x / 'names.txt').write_text('dog'),
    'weights of init_cfg': lambda x: (x / 'weights.pth').write_bytes(b'1235'),
    'an image': lambda x: (x / 'elsewhere/a.png').write_text('longer'),
    'an image of the same size': lambda x: (x / 'elsewhere/a.png').write_text('b.png'),
    'an image is gone': lambda x: (x / 'elsewhere/a.png').unlink(),
    'one image more': lambda x: (x / 'elsewhere/c.png').touch(),
    'a setting': lambda x: (x / 'own.py').open('a').write('more = 1\n'),
}


@pytest.mark.parametrize('change', CHANGES)
def test_a_change_of_what_is_read_is_another_run(config, tmp_path, change):
    before = identity(config, {'a': '1'})
    assert identity(config, {'a': '1'}) == before
    CHANGES[change](tmp_path)
    assert identity(config, {'a': '1'}) != before


def test_content_counts_where_size_and_time_are_equal(config, tmp_path):
    """In another process, as the answers of one process are kept by size and time."""
    from mmrank.runners import identity as module

    before = identity(config, {})
    path = tmp_path / 'val.json'
    times = os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns
    path.write_text('{"box": [1, 3]}')
    os.utime(path, ns=times)
    module._digest.cache_clear()
    assert identity(config, {}) != before


def test_options_and_what_they_name_count(config, tmp_path):
    plain = identity(config, {})
    assert identity(config, {'a': '1'}) != plain
    assert identity(config, {}, 'tune') != plain
    (tmp_path / 'more.pth').write_bytes(b'1')
    before = identity(config, {'load_from': 'more.pth'})
    (tmp_path / 'more.pth').write_bytes(b'2')
    assert identity(config, {'load_from': 'more.pth'}) != before


def test_times_and_what_no_setting_names_do_not_count(config, tmp_path):
    before = identity(config, {})
    os.utime(tmp_path / 'elsewhere/deep/b.png', (1, 1))  # as a copy has
    (tmp_path / 'notes.txt').write_text('x')
    (tmp_path / 'data/work_dirs').mkdir()
    (tmp_path / 'data/work_dirs/drawn.png').touch()
    assert identity(config, {}) == before
