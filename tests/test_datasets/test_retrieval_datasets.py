"""The retrieval data sets on tiny trees in the published formats."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.registry import DATASETS

from mmrank.datasets.coco_report import AnnotationError
from mmrank.datasets.retrieval.class_split import split_classes

pytest.importorskip('mmpretrain')

ROOT = Path(__file__).resolve().parents[2]


def build(name, root, **options):
    return DATASETS.build(
        dict(type=f'mmrank.{name}', data_root=str(root), **options)
    )


def write_images(root, paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(root / path), np.zeros((8, 8, 3), np.uint8))


def check_items(dataset, root, expected):
    """``expected``: class name of every path, in any order."""
    names = dataset.metainfo['classes']
    found = {}
    for index in range(len(dataset)):
        item = dataset.get_data_info(index)
        path = Path(item['img_path']).relative_to(root).as_posix()
        found[path] = names[item['gt_label']]
        assert item['sample_idx'] == index
    assert found == expected
    labels = dataset.get_gt_labels()
    assert labels.dtype.kind == 'i'
    assert sorted(set(labels.tolist())) == list(range(len(names)))
    assert [names[label] for label in labels] == list(found.values())


def write_sop(root, num_classes=40):
    header = 'image_id class_id super_class_id path\n'
    lists = {'train': [header], 'test': [header]}
    expected = {'train': {}, 'test': {}}
    image = 0
    for label in range(1, num_classes + 1):
        split = 'train' if label <= num_classes // 2 else 'test'
        group = 1 + label % 2
        for _ in range(2 + label % 3):
            image += 1
            path = f'chair_{group}/{image}_0.JPG'
            lists[split].append(f'{image} {label} {group} {path}\n')
            expected[split][path] = str(label)
    for split, lines in lists.items():
        (root / f'Ebay_{split}.txt').write_text(''.join(lines))
    return expected


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
        split: build(
            'StanfordOnlineProducts', tmp_path, split=split, val_fraction=0.2
        )
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
    again = build(
        'StanfordOnlineProducts', tmp_path, split='val', val_fraction=0.2
    )
    assert again.metainfo == parts['val'].metainfo
    other = build(
        'StanfordOnlineProducts',
        tmp_path,
        split='val',
        val_fraction=0.2,
        split_seed=1,
    )
    assert other.metainfo != parts['val'].metainfo


def write_vehicles(root):
    folder = root / 'train_test_split'
    folder.mkdir()
    (folder / 'train_list.txt').write_text(
        '0000001 7\n0000002 7\n0000003 10\n'
    )
    for size, classes in ((800, 2), (1600, 4), (2400, 6)):
        lines = [
            f'{1000 + 3 * c + i:07d} {100 + c}\n'
            for c in range(classes)
            for i in range(3)
        ]
        (folder / f'test_list_{size}.txt').write_text(''.join(lines))


def test_vehicle_id(tmp_path):
    write_vehicles(tmp_path)
    train = build('VehicleID', tmp_path, split='trainval')
    check_items(
        train,
        tmp_path,
        {
            'image/0000001.jpg': '7',
            'image/0000002.jpg': '7',
            'image/0000003.jpg': '10',
        },
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
            'VehicleID',
            tmp_path,
            split='test',
            gallery='one_per_class',
            gallery_seed=seed,
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
    metric = METRICS.build(
        dict(type='mmrank.RetrievalMetric', gallery_key='in_gallery')
    )
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


def write_inaturalist(root):
    folder = root / 'Inat_dataset_splits'
    folder.mkdir()
    paths = [
        f'train_val2018/{group}/{species}/{i}.jpg'
        for group, species in (('Aves', 12), ('Aves', 3), ('Fungi', 3))
        for i in range(2)
    ]
    (folder / 'Inaturalist_train_set1.txt').write_text('\n'.join(paths))
    (folder / 'Inaturalist_test_set1.txt').write_text(
        'train_val2018/Aves/9/a.jpg Aves/9\n'
    )
    return paths


def test_inaturalist(tmp_path):
    paths = write_inaturalist(tmp_path)
    train = build('INaturalistRetrieval', tmp_path, split='trainval')
    check_items(
        train, tmp_path, {p: '/'.join(p.split('/')[1:3]) for p in paths}
    )
    assert train.metainfo['classes'] == ('Aves/3', 'Aves/12', 'Fungi/3')
    test = build('INaturalistRetrieval', tmp_path, split='test')
    check_items(test, tmp_path, {'train_val2018/Aves/9/a.jpg': 'Aves/9'})


@pytest.fixture
def alphabets(tmp_path):
    paths = [
        f'{alphabet}/character{c:02d}/{i}.png'
        for alphabet in ('Greek', 'Korean', 'Latin')
        for c in (1, 2)
        for i in range(3)
    ]
    write_images(tmp_path, paths)
    return tmp_path, {p: p.rpartition('/')[0] for p in paths}


def test_omniglot(alphabets):
    root, expected = alphabets
    check_items(build('Omniglot', root), root, expected)
    two = build('Omniglot', root, alphabets=('Korean', 'Latin'))
    own = {p: c for p, c in expected.items() if not p.startswith('Greek')}
    check_items(two, root, own)
    with pytest.raises(AnnotationError, match=r"no folders \['Klingon'\]"):
        build('Omniglot', root, alphabets=('Korean', 'Klingon'))
    with pytest.raises(TypeError, match=r"write \('Korean',\)"):
        build('Omniglot', root, alphabets='Korean')


def test_class_folder(alphabets):
    root, expected = alphabets
    own = {p: p.partition('/')[0] for p in expected}
    check_items(build('ClassFolder', root), root, own)
    check_items(build('ClassFolder', root, depth=2), root, expected)
    chosen = build('ClassFolder', root, classes=('Latin', 'Greek'))
    assert chosen.metainfo['classes'] == ('Latin', 'Greek')
    assert Counter(chosen.get_gt_labels().tolist()) == {0: 6, 1: 6}
    with pytest.raises(AnnotationError, match='Elvish'):
        build('ClassFolder', root, classes=('Latin', 'Elvish'))
    assert len(build('ClassFolder', root, indices=4)) == 4


def test_class_folder_splits_do_not_overlap(alphabets):
    root, expected = alphabets
    options = dict(depth=2, test_fraction=0.5, val_fraction=0.3)
    parts = {
        split: build('ClassFolder', root, split=split, **options)
        for split in ('train', 'val', 'test')
    }
    names = [n for d in parts.values() for n in d.metainfo['classes']]
    assert sorted(names) == sorted(set(expected.values()))
    sizes = {s: len(d.metainfo['classes']) for s, d in parts.items()}
    assert sizes == {'train': 2, 'val': 1, 'test': 3}
    joint = build('ClassFolder', root, split='trainval', **options)
    assert len(joint) == len(parts['train']) + len(parts['val'])


def test_class_folder_with_a_list(tmp_path):
    (tmp_path / 'list.txt').write_text(
        'a/1.png\n\na/2.png b\nwith blank/3.png\ttwo words\n'
    )
    dataset = build('ClassFolder', tmp_path, ann_file='list.txt')
    check_items(
        dataset,
        tmp_path,
        {'a/1.png': 'a', 'a/2.png': 'b', 'with blank/3.png': 'two words'},
    )


def test_bad_lines_are_named(tmp_path):
    write_sop(tmp_path)
    path = tmp_path / 'Ebay_train.txt'
    lines = path.read_text().splitlines()
    lines[3] = 'x 4 1 a.jpg'
    lines[9] = '7 4 1'
    path.write_text('\n'.join(lines))
    with pytest.raises(AnnotationError) as caught:
        build('StanfordOnlineProducts', tmp_path)
    text = str(caught.value)
    assert '2 lines' in text
    assert f'{path}:4:' in text
    assert f'{path}:10:' in text
    assert 'image_id class_id super_class_id path' in text


@pytest.mark.parametrize(
    ('name', 'options', 'error', 'message'),
    [
        ('StanfordOnlineProducts', {}, AnnotationError, 'Ebay_train.txt'),
        ('VehicleID', {}, AnnotationError, 'train_list.txt'),
        ('ClassFolder', {}, AnnotationError, 'lists no image'),
        ('VehicleID', {'test_size': 'tiny'}, ValueError, "'tiny'"),
        ('VehicleID', {'gallery': 'x'}, ValueError, 'one_per_class'),
        ('VehicleID', {'split': 'query'}, ValueError, "'query'"),
        (
            'VehicleID',
            {'split': 'val', 'val_fraction': 0},
            ValueError,
            'above 0',
        ),
        ('ClassFolder', {'split': 'test'}, ValueError, 'test_fraction'),
        ('ClassFolder', {'depth': 0}, ValueError, 'depth must be'),
    ],
)
def test_bad_settings_are_named(tmp_path, name, options, error, message):
    with pytest.raises(error, match=message):
        build(name, tmp_path, **options)


def test_split_of_classes():
    groups = {str(i): 'ab'[i % 2] for i in range(200)}
    stay, aside = split_classes(groups, 0.1, seed=0)
    assert len(aside) == 20
    assert sorted([*stay, *aside]) == sorted(groups)
    assert Counter(groups[n] for n in aside) == {'a': 10, 'b': 10}
    backwards = dict(reversed(groups.items()))
    assert set(split_classes(backwards, 0.1, seed=0)[1]) == set(aside)
    # One more class moves at most a few others.
    more = split_classes({**groups, 'new': 'a'}, 0.1, seed=0)[1]
    assert len(set(more) ^ set(aside)) <= 2
    assert split_classes(groups, 0, seed=0) == (list(groups), [])
    assert len(split_classes(dict.fromkeys('abc', ''), 0.01, 0)[1]) == 1
    # The published split of a run must not move: a change here breaks it.
    names = dict.fromkeys('abcdefgh', '')
    assert split_classes(names, 0.25, seed=0)[1] == GOLDEN_ASIDE
    with pytest.raises(ValueError, match=r'in \[0, 1\)'):
        split_classes(groups, 1.0, seed=0)
    with pytest.raises(ValueError, match='leaves none'):
        split_classes({'a': ''}, 0.5, seed=0)


GOLDEN_ASIDE = ['f', 'h']


def test_real_omniglot(tmp_path):
    archive = ROOT.parent / 'shared/data/omniglot/images_background_small1.zip'
    if not archive.is_file():
        pytest.skip('needs ../shared/data/omniglot')
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / 'tools/dataset_converters/omniglot.py'),
            str(archive),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    dataset = build('Omniglot', tmp_path, alphabets=('Korean', 'Latin'))
    assert len(dataset.metainfo['classes']) == 66
    assert set(np.bincount(dataset.get_gt_labels())) == {20}
    path = dataset.get_data_info(0)['img_path']
    image = cv2.imread(path, cv2.IMREAD_UNCHANGED)
    assert image.shape == (28, 28)
    # Ink is white, and little of the paper is inked.
    assert image.max() > 150
    assert image.mean() < 60
    assert np.median(image) == 0


def test_without_mmpretrain_the_package_is_named():
    code = (
        'import sys\n'
        "sys.modules['mmpretrain'] = None\n"
        'from mmengine.registry import DATASETS\n'
        'from mmrank.datasets.retrieval.builders import RETRIEVAL_DATASETS\n'
        'for name in RETRIEVAL_DATASETS:\n'
        '    try:\n'
        "        DATASETS.build(dict(type=f'mmrank.{name}', data_root=''))\n"
        '    except ImportError as error:\n'
        '        print(error)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('needs mmpretrain, which is not installed') == 5
