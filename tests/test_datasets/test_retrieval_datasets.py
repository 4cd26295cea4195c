"""The benchmarks' data sets on tiny lists in the published formats."""

from collections import Counter

import pytest
from retrieval_trees import (
    build,
    check_items,
    write_images,
    write_inaturalist,
    write_sop,
    write_vehicles,
)

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
    assert every.get_data_info(0)['super_class'] == '2'


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
    again = build('StanfordOnlineProducts', tmp_path, split='val', val_fraction=0.2)
    assert again.metainfo == parts['val'].metainfo
    other = build('StanfordOnlineProducts', tmp_path, split='val', val_fraction=0.2, split_seed=1)
    assert other.metainfo != parts['val'].metainfo


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
        assert 'in_gallery' not in test.get_data_info(0)


def test_vehicle_id_with_one_gallery_image_a_class(tmp_path):
    write_vehicles(tmp_path)

    def chosen(seed):
        dataset = build(
            'VehicleID', tmp_path, split='test', gallery='one_per_class', gallery_seed=seed
        )
        items = [dataset.get_data_info(i) for i in range(len(dataset))]
        return [i for i in items if i['in_gallery']]

    labels = [item['gt_label'] for item in chosen(0)]
    assert labels == list(range(6))
    assert chosen(0) == chosen(0)
    paths = {tuple(i['img_path'] for i in chosen(s)) for s in range(5)}
    assert len(paths) > 1


def test_vehicle_id_official_protocol_through_pack_and_metric(tmp_path):
    """A query finds its one positive behind a wrong one: AP is 1/2."""
    import torch
    from mmengine.registry import METRICS, init_default_scope

    init_default_scope('mmpretrain')
    write_vehicles(tmp_path)
    names = [f'image/{i:07d}.jpg' for i in range(1000, 1006)]
    write_images(tmp_path, names)
    dataset = build(
        'VehicleID',
        tmp_path,
        split='test',
        test_size='small',
        gallery='one_per_class',
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='PackInputs', meta_keys=('sample_idx', 'in_gallery')),
        ],
    )
    metric = METRICS.build(dict(type='mmrank.RetrievalMetric', gallery_key='in_gallery'))
    samples = []
    for index in range(len(dataset)):
        sample = dataset[index]['data_samples']
        axis = int(sample.gt_label) ^ (not sample.in_gallery)
        sample.set_field(torch.eye(2)[axis], 'feature')
        samples.append(sample.to_dict())
    metric.process(None, samples)
    figures = metric.evaluate(len(samples))
    assert figures['retrieval/queries'] == 4
    assert figures['retrieval/mAP'] == pytest.approx(50)


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
    ('name', 'options', 'error', 'message'),
    [
        ('StanfordOnlineProducts', {}, UserError, 'Ebay_train.txt'),
        ('VehicleID', {}, UserError, 'train_list.txt'),
        ('ClassFolder', {}, UserError, 'lists no image'),
        ('VehicleID', {'test_size': 'tiny'}, ValueError, "'tiny'"),
        ('VehicleID', {'gallery': 'x'}, ValueError, 'one_per_class'),
        ('VehicleID', {'split': 'query'}, ValueError, "'query'"),
        ('VehicleID', {'split': 'val', 'val_fraction': 0}, ValueError, 'above 0'),
        ('ClassFolder', {'split': 'test'}, ValueError, 'test_fraction'),
        ('ClassFolder', {'depth': 0}, ValueError, 'depth must be'),
    ],
)
def test_bad_settings_are_named(tmp_path, name, options, error, message):
    with pytest.raises(error, match=message):
        build(name, tmp_path, **options)
