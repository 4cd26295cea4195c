"""ChestX-ray14 on a tiny copy of its published files."""

from pathlib import Path

import pytest
from chest_xray_tree import FINDINGS, NUM_PATIENTS, write_chest_xrays
from mmengine.registry import DATASETS

from mmrank.errors import UserError

pytest.importorskip('mmpretrain')
from mmrank.datasets.long_tail.chest_xray14 import ChestXray14


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
    part = build(root, split='test', classes=['Hernia', 'Mass'])
    assert part.metainfo['classes'] == ('Hernia', 'Mass')
    for index, name in enumerate(tests):
        own = labels[name].split('|')
        found = part.get_data_info(index)['gt_score'].tolist()
        assert found == [float('Hernia' in own), float('Mass' in own)]


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
    monkeypatch.setattr(ChestXray14, 'val_fraction', 0.03)
    with pytest.raises(ValueError, match='and no positive of Hernia'):
        build(root, split='val', split_by='lists')


def test_images_in_one_folder(damaged):
    (damaged / 'mine').mkdir()
    for path in damaged.glob('images_*/images/*.png'):
        path.rename(damaged / 'mine' / path.name)
    assert len(build(damaged, split='test', data_prefix='mine')) == 45
    (damaged / 'mine').rename(damaged / 'images')
    assert len(build(damaged, split='test')) == 45
    (damaged / 'images/00000058_000.png').unlink()
    with pytest.raises(UserError, match='1 of 45 images are missing'):
        build(damaged, split='test')


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(split_by='ratio'), "'lists', 'patients'"),
        (dict(classes=['Cough']), r"classes=\['Cough'\] must name some"),
        (dict(classes=[]), 'must name some'),
    ],
)
def test_bad_settings_are_named(tree, settings, message):
    with pytest.raises(ValueError, match=message):
        build(tree[0], split='train', **settings)


TABLE = 'Data_Entry_2017.csv'
LIST = 'train_val_list.txt'


@pytest.mark.parametrize(
    ('name', 'old', 'new', 'message'),
    [
        (TABLE, 'Finding Labels', 'Labels', "has no column 'Finding Labels', only"),
        (TABLE, '1_000.png,Cardiomegaly', '1_000.png,Flu', r":5: 'Finding Labels' is 'Flu\|Inf"),
        (TABLE, 'No Finding', 'No Finding|Mass', 'alone. Fix: correct this line'),
        (TABLE, '0_001.png', '0_000.png', f'{TABLE}:3 lists 00000000_000.png a second time'),
        (TABLE, '0_001.png', '0_001.png\n', f'{TABLE}:3: expected 12 fields'),
        (LIST, '00000002_0', '99999999_0', 'of which 1 are named twice or are not .* 99999999'),
        (LIST, '2_000.png', '2_001.png', 'of which 1 are .*, like 00000002_001'),
    ],
)
def test_damaged_files_are_named(damaged, name, old, new, message):
    text = (damaged / name).read_text()
    assert old in text
    (damaged / name).write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        build(damaged)
