"""The benchmarks' data sets on tiny lists in the published formats."""

from collections import Counter

import pytest
from retrieval_trees import build, check_items, write_inaturalist, write_sop, write_vehicles

from mmrank.errors import UserError

pytest.importorskip('mmpretrain')


def test_stanford_online_products(tmp_path):
    expected = write_sop(tmp_path)
    name = 'StanfordOnlineProducts'
    test = build(name, tmp_path, split='test')
    check_items(test, tmp_path, expected['test'])
    # In the order of numbers, not of strings.
    assert test.metainfo['classes'][:3] == ('21', '22', '23')
    every = build(name, tmp_path, split='trainval')
    check_items(every, tmp_path, expected['train'])
    assert every.metainfo['classes'][8:11] == ('9', '10', '11')


def test_validation_classes_come_from_every_super_class(tmp_path):
    expected = write_sop(tmp_path)['train']
    parts = {
        split: build('StanfordOnlineProducts', tmp_path, split=split, val_fraction=0.2)
        for split in ('train', 'val', 'trainval')
    }
    classes = {s: set(d.metainfo['classes']) for s, d in parts.items()}
    assert classes['train'] | classes['val'] == classes['trainval']
    assert not classes['train'] & classes['val']
    groups = Counter(int(name) % 2 for name in classes['val'])
    assert groups == {0: 2, 1: 2}
    for split in ('train', 'val'):
        own = {p: c for p, c in expected.items() if c in classes[split]}
        check_items(parts[split], tmp_path, own)


def test_vehicle_id(tmp_path):
    write_vehicles(tmp_path)
    train = build('VehicleID', tmp_path, split='trainval')
    check_items(
        train,
        tmp_path,
        {'image/0000001.jpg': '7', 'image/0000002.jpg': '7', 'image/0000003.jpg': '10'},
    )
    for size, classes in (('small', 2), ('medium', 4), ('large', 6)):
        test = build('VehicleID', tmp_path, split='test', test_size=size)
        assert len(test.metainfo['classes']) == classes
        assert len(test) == 3 * classes


def test_inaturalist(tmp_path):
    paths = write_inaturalist(tmp_path)
    train = build('INaturalistRetrieval', tmp_path, split='trainval')
    check_items(train, tmp_path, {p: '/'.join(p.split('/')[1:3]) for p in paths})
    assert train.metainfo['classes'] == ('Aves/3', 'Aves/12', 'Fungi/3')
    test = build('INaturalistRetrieval', tmp_path, split='test')
    check_items(test, tmp_path, {'train_val2018/Aves/9/a.jpg': 'Aves/9'})


def test_bad_lines_are_named(tmp_path):
    write_sop(tmp_path)
    path = tmp_path / 'Ebay_train.txt'
    lines = path.read_text().splitlines()
    lines[3] = 'x 4 1 a.jpg'
    lines[9] = '7 4 1'
    path.write_text('\n'.join(lines))
    with pytest.raises(UserError) as caught:
        build('StanfordOnlineProducts', tmp_path)
    text = str(caught.value)
    assert '2 lines' in text
    assert f'{path}:4:' in text
    assert f'{path}:10:' in text
    assert 'image_id class_id super_class_id path' in text


@pytest.mark.parametrize(
    ('name', 'options', 'message'),
    [
        ('ClassFolder', {}, 'lists no image'),
        ('VehicleID', {'test_size': 'tiny'}, "'tiny'"),
        ('VehicleID', {'split': 'val', 'val_fraction': 0}, 'above 0'),
        ('ClassFolder', {'split': 'test'}, 'test_fraction'),
        ('ClassFolder', {'depth': 0}, 'depth must be'),
    ],
)
def test_bad_settings_are_named(tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, tmp_path, **options)
