"""Multi-label data: tables, ChestX-ray14, and labels and pixels that a training must refuse."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from chest_xray_tree import FINDINGS, NUM_PATIENTS, write_chest_xrays
from labelled import LabelledItems
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmengine.registry import HOOKS, TRANSFORMS
from retrieval_trees import build, write_images
from tiny_runner import stand_in

from mmrank.datasets.labels import check_labels
from mmrank.errors import UserError

pytest.importorskip('mmpretrain')
from mmrank.datasets.long_tail.multi_label import ChestXray14

TABLE = 'image,cat,dog\na.png,1,0\nb.png,0,1\nc.png,1,1.0\nd.png,0,0\n'


def table(root, text=TABLE, **settings):
    (root / 'train.csv').write_text(text)
    write_images(root, ('a.png', 'b.png', 'c.png', 'd.png'))
    return build('MultiLabelCSV', root, ann_file='train.csv', data_prefix='.', **settings)


def test_table_of_zeros_and_ones(tmp_path):
    found = table(tmp_path)
    assert found.metainfo['classes'] == ('cat', 'dog')
    items = [found.get_data_info(i) for i in range(4)]
    assert [item['gt_label'] for item in items] == [[0], [1], [0, 1], []]
    assert items[2]['gt_score'].tolist() == [1, 1]
    assert items[2]['gt_score'].dtype == np.float32
    assert check_labels(found).tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]
    dogs = table(
        tmp_path,
        classes=['dog'],
        pipeline=[dict(type='mmpretrain.LoadImageFromFile'), dict(type='mmpretrain.PackInputs')],
    )
    samples = [dogs[i]['data_samples'] for i in range(4)]
    assert [int(s.gt_score) for s in samples] == [0, 1, 1, 0]


def test_labels_of_any_data_set():
    found = check_labels(
        LabelledItems([dict(gt_label=[0, 1]), dict(gt_label=[]), dict(gt_label=1)])
    )
    assert found.tolist() == [[1, 1], [0, 0], [0, 1]]
    parts = [LabelledItems([dict(gt_score=[1, 0])]), LabelledItems([dict(gt_score=[0.0, 1.0])])]
    assert check_labels(ConcatDataset(parts)).tolist() == [[1, 0], [0, 1]]
    twice = RepeatDataset(LabelledItems([dict(gt_label=0), dict(gt_label=1)]), 2)
    assert check_labels(twice).tolist() == [[1, 0], [0, 1]] * 2
    parts[1] = LabelledItems([dict(gt_score=[1])], ['a'])
    for items, message in (
        (ConcatDataset(parts, ignore_keys=['classes']), r'gt_score=\[1\], not 2 numbers'),
        (LabelledItems([dict(gt_label=0)], ()), 'has 1 items and names 0 classes'),
        ([], 'has 0 items'),
    ):
        with pytest.raises(UserError, match=message):
            check_labels(items)


@pytest.mark.parametrize(
    ('items', 'message'),
    [
        ([dict(gt_label=[0, 2])], r'gt_label=\[0, 2\], not class indices'),
        ([dict(gt_label=-1)], r'gt_label=\[-1\]'),
        ([dict(gt_label=[0, 0])], 'each once'),
        ([dict(gt_label=[0.5])], r'gt_label=\[0.5\]'),
        ([dict(gt_score=[0, 2])], r'gt_score=\[0, 2\], not 2 numbers'),
        ([dict(gt_score=[0, np.nan])], 'not 2 numbers 0 or 1'),
        ([dict(other=1)], r"gt_label=\['unknown'\], not class indices"),
        ([dict(gt_label=0)] * 3, 'no positive of b'),
        ([dict(gt_label=[0, 1]), dict(gt_label=0)], 'no negative of a'),
    ],
)
def test_bad_labels_are_named(items, message):
    with pytest.raises(UserError, match=message):
        check_labels(LabelledItems([*items]), 'val')


def loop(*items):
    return stand_in(LabelledItems([dict(gt_label=x) for x in items])).train_loop


def test_hook_checks_each_split_once():
    labels = LabelledItems([dict(gt_label=[0]), dict(gt_label=[1])])
    runner = stand_in(labels, val_loop=loop([0], [0]), test_loop=loop([0], [5]))
    hook = HOOKS.build(dict(type='mmrank.LabelCheckHook'))
    with pytest.raises(UserError, match='the val split .* of b'):
        hook.before_train(runner)
    with pytest.raises(UserError, match=r'gt_label=\[5\]'):
        hook.before_test(runner)
    hook.before_train(runner)
    runner.val_loop = None
    without_val = HOOKS.build(dict(type='mmrank.LabelCheckHook'))
    without_val.before_train(runner)
    with pytest.raises(UserError, match='gt_label'):
        without_val.before_test(runner)
    runner.val_loop = loop([0], [0])
    with pytest.raises(UserError, match='the val split .* of b'):
        without_val.before_val(runner)


def test_pixels_that_are_not_finite():
    check = TRANSFORMS.build(dict(type='mmrank.CheckFinite'))
    good = dict(img=np.ones((2, 3, 1), np.float32), img_path='a.png')
    assert check(good) is good
    integers = dict(img=np.full((2, 2), 255, np.uint8))
    assert check(integers) is integers
    for value in (np.nan, np.inf):
        image = np.ones((2, 3, 1), np.float32)
        image[1, 2] = value
        bad = dict(img=image, img_path='b.png', sample_idx=7)
        message = r'b.png \(sample_idx 7\) has 1 of 6 .* first at \[1, 2, 0\]'
        with pytest.raises(ValueError, match=message):
            check(bad)
        with pytest.raises(ValueError, match='without a file'):
            check(dict(img=[np.ones(2), image]))


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
    """Folder, labels by name, and the names of the test list."""
    root = tmp_path_factory.mktemp('chest')
    return root, *write_chest_xrays(root)


chest = partial(build, 'ChestXray14', serialize_data=False)


def names_of(dataset):
    return [Path(dataset.get_data_info(i)['img_path']).name for i in range(len(dataset))]


def test_x_rays_follow_table_and_lists(tree):
    root, labels, tests = tree
    test = chest(root, split='test')
    assert names_of(test) == tests
    assert test.metainfo['classes'] == FINDINGS
    for index, name in enumerate(tests):
        item = test.get_data_info(index)
        assert Path(item['img_path']).is_file()
        there = {FINDINGS[i] for i in item['gt_label']}
        assert there == set(labels[name].split('|')) - {'No Finding'}
        assert item['gt_score'].nonzero()[0].tolist() == item['gt_label']
        assert test.get_cat_ids(index) == item['gt_label']
    part = chest(root, split='test', classes=['Hernia', 'Mass'])
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
        part = chest(root, split=split, **settings)
        names[split] = names_of(part)
        patients[split] = {name[:8] for name in names[split]}
    assert sum(map(len, names.values())) == len(labels)
    assert sum(map(len, patients.values())) == NUM_PATIENTS
    sizes = [len(patients[split]) for split in ('train', 'val', 'test')]
    assert sizes == ([31, 14, 15] if split_by == 'lists' else [48, 6, 6])
    if split_by == 'lists':
        assert names['test'] == tests
    both = chest(root, split='trainval', **settings)
    assert set(names_of(both)) == set(names['train'] + names['val'])
    monkeypatch.setattr(ChestXray14, 'val_fraction', 0.03)
    with pytest.raises(ValueError, match='and no positive of Hernia'):
        chest(root, split='val', split_by='lists')


def test_x_rays_in_one_folder(tmp_path):
    write_chest_xrays(tmp_path)
    (tmp_path / 'mine').mkdir()
    for path in tmp_path.glob('images_*/images/*.png'):
        path.rename(tmp_path / 'mine' / path.name)
    assert len(chest(tmp_path, split='test', data_prefix='mine')) == 45
    (tmp_path / 'mine').rename(tmp_path / 'images')
    assert len(chest(tmp_path, split='test')) == 45
    (tmp_path / 'images/00000058_000.png').unlink()
    with pytest.raises(UserError, match='1 of 45 images are missing'):
        chest(tmp_path, split='test')


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(split_by='ratio'), "'lists', 'patients'"),
        (dict(classes=['Cough']), r"classes=\['Cough'\] must name some"),
        (dict(classes=[]), 'must name some'),
    ],
)
def test_bad_settings_of_x_rays_are_named(tree, settings, message):
    with pytest.raises(ValueError, match=message):
        chest(tree[0], split='train', **settings)
