"""Retrieval data sets: the benchmarks' lists, Omniglot and a user's own class folders."""

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

from mmrank.datasets.retrieval.retrieval_sets import split_classes
from mmrank.errors import UserError

pytest.importorskip('mmpretrain')


SPLITS = ('train', 'val', 'trainval')


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
    # Validation classes come from every super class.
    parts = {split: build(name, tmp_path, split=split, val_fraction=0.2) for split in SPLITS}
    classes = {s: set(d.metainfo['classes']) for s, d in parts.items()}
    assert classes['train'] | classes['val'] == classes['trainval']
    assert not classes['train'] & classes['val']
    groups = Counter(int(name) % 2 for name in classes['val'])
    assert groups == {0: 2, 1: 2}
    for split in ('train', 'val'):
        own = {p: c for p, c in expected['train'].items() if c in classes[split]}
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
    with pytest.raises(UserError, match=r"no folders \['Klingon'\]"):
        build('Omniglot', root, alphabets=('Korean', 'Klingon'))


def test_class_folder(alphabets):
    root, expected = alphabets
    own = {p: p.partition('/')[0] for p in expected}
    check_items(build('ClassFolder', root), root, own)
    check_items(build('ClassFolder', root, depth=2), root, expected)
    chosen = build('ClassFolder', root, classes=('Latin', 'Greek'))
    assert chosen.metainfo['classes'] == ('Latin', 'Greek')
    assert Counter(chosen.get_gt_labels().tolist()) == {0: 6, 1: 6}
    with pytest.raises(UserError, match='Elvish'):
        build('ClassFolder', root, classes=('Latin', 'Elvish'))
    options = dict(depth=2, test_fraction=0.5, val_fraction=0.3)
    parts = [build('ClassFolder', root, split=x, **options) for x in (*SPLITS, 'test')]
    assert [len(x.metainfo['classes']) for x in parts] == [2, 1, 3, 3]
    names = [n for x in parts[2:] for n in x.metainfo['classes']]
    assert sorted(names) == sorted(set(expected.values()))


def test_class_folder_with_a_list(tmp_path):
    (tmp_path / 'list.txt').write_text('a/1.png\n\na/2.png b\nwith blank/3.png\ttwo words\n')
    dataset = build('ClassFolder', tmp_path, ann_file='list.txt')
    check_items(
        dataset, tmp_path, {'a/1.png': 'a', 'a/2.png': 'b', 'with blank/3.png': 'two words'}
    )


def test_labels_of_several_levels(alphabets):
    root, _ = alphabets
    names = [f'{x}/character{c:02d}' for x in ('Greek', 'Korean', 'Latin') for c in (1, 2)]
    lines = [f'{"Asia" if "Kor" in x else "Europe"}\t{x.split("/")[0]}\t{x}' for x in names]
    path = root / 'hierarchy.txt'
    path.write_text('\n'.join(lines))
    options = dict(depth=2, pipeline=[])
    plain = build('ClassFolder', root, **options)
    three = build('ClassFolder', root, **options, hierarchy=str(path))
    two = build('ClassFolder', root, **options, hierarchy='super_class')
    # Samplers see the class, heads and metrics all levels.
    assert three.get_gt_labels().tolist() == plain.get_gt_labels().tolist()
    by_name = {names[x[-1]]: x for x in (item['gt_label'] for item in three)}
    first, second, korean, latin = (by_name[names[i]] for i in (0, 1, 2, 4))
    assert first[:2] == second[:2]
    assert first[0] == latin[0] != korean[0]
    assert len({x[1] for x in by_name.values()}) == 3
    assert [x['gt_label'][1] for x in two] == [x['gt_label'] for x in plain]
    assert len({x['gt_label'][0] for x in two}) == 3
    for broken in (lines[1:], [*lines, 'x'], [*lines, lines[0].replace('Europe', 'Asia')]):
        path.write_text('\n'.join(broken))
        with pytest.raises(UserError, match='lacks .*or a class twice. Fix: a line for each'):
            build('ClassFolder', root, **options, hierarchy=str(path))
    with pytest.raises(UserError, match=r'none\.txt cannot be read.*Fix: '):
        build('ClassFolder', root, **options, hierarchy=str(root / 'none.txt'))


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
    assert split_classes(names, 0.25, seed=0)[1] == ['f', 'h']
    sizes = dict(zip(map(str, range(10)), 'aaaaaabbbc'))
    aside = split_classes(sizes, 0.1, seed=0, count=4)[1]
    # 2.4, 1.2 and 0.4 classes: the largest remainders get the last one.
    assert Counter(sizes[n] for n in aside) == {'a': 3, 'b': 1}
    with pytest.raises(ValueError, match='num_val_classes=10 of 10.* Fix'):
        split_classes(sizes, 0.1, seed=0, count=10)
    with pytest.raises(ValueError, match=r'in \[0, 1\)'):
        split_classes(groups, 1.0, seed=0)
    with pytest.raises(ValueError, match='leaves none'):
        split_classes({'a': ''}, 0.5, seed=0)
