"""Lists of the Grocery Store data set."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from mmengine.registry import DATASETS

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools/dataset_converters/grocery.py'
COUNTS = {0: 60, 1: 50, 2: 40}


@pytest.fixture
def source(tmp_path):
    """Three products; the lists name images of a byte."""
    folder = tmp_path / 'source'
    for split in ('train', 'val', 'test'):
        lines = []
        for label, count in COUNTS.items():
            for number in range(count if split == 'train' else 2):
                path = f'{split}/p{label}/{number}.jpg'
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(b'x')
                lines.append(f'{path},{label},0\n')
        (folder / f'{split}.txt').write_text(''.join(lines))
    (folder / 'classes.csv').write_text(
        'fine,fine_name,coarse,coarse_name,description\n'
        '1,Oat Milk,0,Milk,"Milk, of oats."\n'
        '0,Apple,1,Fruit,Sweet.\n'
        '2,Pear,1,Fruit,Soft.\n'
    )
    return folder


def lines_of(path):
    return path.read_text().splitlines()


def test_lists(source, run_script, tmp_path):
    out = tmp_path / 'out'
    status, text, error = run_script(TOOL, source, out)
    assert status == 0, error
    assert '150 train, 6 val, 6 test' in ' '.join(text.split())
    assert lines_of(out / 'products.txt') == ['Apple', 'Oat Milk', 'Pear']
    hierarchy = [line.split('\t') for line in lines_of(out / 'hierarchy.txt')]
    assert [name for _, name in hierarchy] == ['Apple', 'Oat Milk', 'Pear']
    images = lines_of(out / 'images.txt')
    assert len(images) == 162
    assert 'train/p1/0.jpg\tOat Milk' in images
    assert lines_of(out / 'val.txt')[2] == 'val/p1/0.jpg 1'
    entry = json.loads(lines_of(out / 'captions_test.jsonl')[2])
    assert entry == {
        'image': 'test/p1/0.jpg',
        'caption': ['Oat Milk', 'Milk, of oats.'],
        'label': 'Oat Milk',
    }
    assert (out / 'train/p0/59.jpg').read_bytes() == b'x'
    tail = [x.split()[1] for x in lines_of(out / 'train_ratio50.txt')]
    # 60 / 50 ** (0, 1/2, 1)
    assert Counter(tail) == {'0': 60, '1': 8, '2': 1}

    pytest.importorskip('mmpretrain.datasets')
    folder = DATASETS.build(
        dict(type='mmrank.ClassFolder', data_root=f'{out}/', ann_file='images.txt', pipeline=[])
    )
    assert len(folder) == 162
    assert folder.metainfo['classes'] == ('Apple', 'Oat Milk', 'Pear')
    captions = DATASETS.build(
        dict(
            type='mmrank.CaptionTable',
            data_root=f'{out}/',
            ann_file='captions_train.jsonl',
            label_key='label',
            classes=str(out / 'products.txt'),
            pipeline=[],
        )
    )
    assert len(captions) == 300
    assert captions.get_data_info(120)['gt_label'] == 1


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('val.txt', 'val/p0/0.jpg 0\n', r'val.txt:1.*path,fine,coarse'),
        ('val.txt', 'val/p0/0.jpg,7,0\n', 'label below 3'),
        ('val.txt', '../p0/0.jpg,0,0\n', 'within the folder'),
        ('val.txt', 'val/absent.jpg,0,0\n', r'absent\.jpg'),
        ('classes.csv', 'fine,fine_name\n0,a\n', 'lacks a column'),
        ('classes.csv', 'fine,fine_name,description\n0,a,b\n2,c,d\n', 'each of 0 to 1 once'),
    ],
)
def test_bad_files_are_refused(source, run_script, tmp_path, name, text, message):
    (source / name).write_text(text)
    status, _, error = run_script(TOOL, source, tmp_path / 'out')
    assert status == 2
    assert re.search(message, ' '.join(error.split()))
    assert not (tmp_path / 'out').exists()
