"""ChestX-ray14 on a tiny copy of its published files."""

from pathlib import Path

import pytest
import torch
from chest_xray_tree import FINDINGS, NUM_PATIENTS, write_chest_xrays
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.runner import Runner

from mmrank.errors import UserError

pytest.importorskip('mmpretrain')
from mmrank.datasets.long_tail.chest_xray14 import ChestXray14

CONFIG = Path(__file__).resolve().parents[2] / 'configs/_base_/datasets/chest_xray14_224.py'


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
    """Folder, labels by name, and the names of the test list."""
    root = tmp_path_factory.mktemp('chest')
    return root, *write_chest_xrays(root)


@pytest.fixture
def damaged(tmp_path):
    """A folder to damage."""
    write_chest_xrays(tmp_path)
    return tmp_path


def build(root, **settings):
    return DATASETS.build(
        dict(type='mmrank.ChestXray14', data_root=str(root), serialize_data=False, **settings)
    )


def names_of(dataset):
    return [Path(dataset.get_data_info(i)['img_path']).name for i in range(len(dataset))]


def test_items_follow_table_and_lists(tree):
    root, labels, tests = tree
    test = build(root, split='test')
    assert names_of(test) == tests
    assert test.metainfo['classes'] == FINDINGS
    for index, name in enumerate(tests):
        item = test.get_data_info(index)
        assert Path(item['img_path']).is_file()
        there = {FINDINGS[i] for i in item['gt_label']}
        assert there == set(labels[name].split('|')) - {'No Finding'}
        assert item['gt_score'].nonzero()[0].tolist() == item['gt_label']
        assert test.get_cat_ids(index) == item['gt_label']


@pytest.mark.parametrize('split_by', ['lists', 'patients'])
def test_no_patient_is_in_two_splits(tree, split_by, monkeypatch):
    root, labels, tests = tree
    names, patients = {}, {}
    monkeypatch.setattr(ChestXray14, 'val_fraction', 0.3)
    settings = dict(split_by=split_by, classes=FINDINGS[:-1])
    for split in ('train', 'val', 'test'):
        part = build(root, split=split, **settings)
        names[split] = names_of(part)
        patients[split] = {name[:8] for name in names[split]}
    assert sum(map(len, names.values())) == len(labels)
    assert sum(map(len, patients.values())) == NUM_PATIENTS
    sizes = [len(patients[split]) for split in ('train', 'val', 'test')]
    assert sizes == ([31, 14, 15] if split_by == 'lists' else [48, 6, 6])
    if split_by == 'lists':
        assert names['test'] == tests
    both = build(root, split='trainval', **settings)
    assert set(names_of(both)) == set(names['train'] + names['val'])


def test_a_small_part_without_a_class(tree, monkeypatch):
    monkeypatch.setattr(ChestXray14, 'val_fraction', 0.03)
    with pytest.raises(ValueError, match='and no positive of Hernia'):
        build(tree[0], split='val')


def test_some_classes(tree):
    root, labels, tests = tree
    part = build(root, split='test', classes=['Hernia', 'Mass'])
    assert part.metainfo['classes'] == ('Hernia', 'Mass')
    for index, name in enumerate(tests):
        found = part.get_data_info(index)['gt_score'].tolist()
        own = labels[name].split('|')
        assert found == [float('Hernia' in own), float('Mass' in own)]


def test_images_in_one_folder(damaged):
    (damaged / 'images').mkdir()
    for path in damaged.glob('images_*/images/*.png'):
        path.rename(damaged / 'images' / path.name)
    assert len(build(damaged, split='test')) == 45
    (damaged / 'images').rename(damaged / 'mine')
    assert len(build(damaged, split='test', data_prefix='mine')) == 45


def test_the_data_config_loads_batches(tree, monkeypatch):
    monkeypatch.setattr(ChestXray14, 'val_fraction', 0.3)
    root = tree[0]
    init_default_scope('mmpretrain')
    cfg = Config.fromfile(CONFIG)
    for split in ('train', 'val', 'test'):
        loader = cfg[f'{split}_dataloader']
        loader.dataset.data_root = str(root)
        loader.batch_size, loader.num_workers = 4, 0
        loader.persistent_workers = False
        data = next(iter(Runner.build_dataloader(loader, seed=0)))
        assert data['inputs'].shape == (4, 3, 224, 224)
        scores = torch.stack([s.gt_score for s in data['data_samples']])
        assert scores.shape == (4, 14)
        assert scores.any()


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(split_by='ratio'), "'lists', 'patients'"),
        (dict(classes=['Cough']), r"classes=\['Cough'\] must name some"),
        (dict(classes=[]), 'must name some'),
        (dict(data_prefix='other'), 'images are missing, like .* looked into'),
    ],
)
def test_bad_settings_are_named(tree, settings, message):
    settings = dict(dict(split='train'), **settings)
    with pytest.raises(ValueError, match=message):
        build(tree[0], **settings)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ('name', 'old', 'new', 'message'),
    [
        ('Data_Entry_2017.csv', 'Finding Labels', 'Labels', "has no column 'Finding Labels', only"),
        (
            'Data_Entry_2017.csv',
            '00000001_000.png,Cardiomegaly|',
            '00000001_000.png,Flu|',
            r"Data_Entry_2017.csv:5: 'Finding Labels' is 'Flu\|Inf",
        ),
        ('Data_Entry_2017.csv', 'No Finding', 'No Finding|Mass', 'alone. Fix: correct this line'),
        (
            'Data_Entry_2017.csv',
            '00000000_001.png',
            '00000000_000.png',
            'Data_Entry_2017.csv:3 lists 00000000_000.png a second time',
        ),
        (
            'Data_Entry_2017.csv',
            '00000000_001.png',
            '00000000_001.png\n',
            r'Data_Entry_2017.csv:3: expected 12 fields',
        ),
        (
            'train_val_list.txt',
            '00000002_000.png',
            '99999999_000.png',
            'of which 1 are named twice or are not .* 99999999',
        ),
        (
            'train_val_list.txt',
            '00000002_000.png',
            '00000002_001.png',
            'of which 1 are .*, like 00000002_001',
        ),
    ],
)
def test_damaged_files_are_named(damaged, name, old, new, message):
    edit(damaged / name, old, new)
    with pytest.raises(UserError, match=message):
        build(damaged)


def test_a_missing_image_is_named(damaged):
    (damaged / 'images_001/images/00000058_000.png').unlink()
    with pytest.raises(UserError, match='1 of 45 images are missing'):
        build(damaged, split='test')
