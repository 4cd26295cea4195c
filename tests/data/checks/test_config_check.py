"""Checks of configs: data sets behind wrappers, and num_classes."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest
from coco_document import coco_document
from mmengine.config import Config
from mmengine.registry import DATASETS as ROOT_DATASETS

from mmrank.annotations.documents import merge_coco
from mmrank.datasets.checks.coco_check import check_config
from mmrank.errors import UserError
from mmrank.registry import DATASETS

pytest.importorskip('mmdet')


@pytest.fixture
def splits(tmp_path):
    """``make(name, change)`` writes a changed document of two images, and returns its name."""
    for folder in ('img', 'other'):
        (tmp_path / folder).mkdir()
        for name in ('1.png', '2.png'):
            (tmp_path / folder / name).write_bytes(b'x')

    def make(name, change=lambda document: None):
        boxes = [(1, 1, [1, 1, 5, 5]), (2, 2, [1, 1, 5, 5])]
        document = coco_document(boxes, 2, (20, 20), ('cell', 'dot'))
        change(document)
        (tmp_path / name).write_text(json.dumps(document))
        return name

    return make


@pytest.fixture
def data_root(tmp_path, splits):
    """A folder of images with ``ann.json``, ``bad.json`` and ``empty.json``."""
    splits('ann.json')
    splits('bad.json', lambda d: d['annotations'][0].update(bbox=[1, 1, -5, 5]))
    splits('empty.json', lambda d: d['annotations'].clear())
    return tmp_path


def coco(root, ann_file='ann.json', classes=('cell', 'dot'), **more) -> dict:
    config = {
        'type': 'CocoDataset',
        'data_root': str(root),
        'ann_file': ann_file,
        'data_prefix': {'img': 'img/'},
        **more,
    }
    if classes is not None:
        config['metainfo'] = {'classes': classes}
    return config


def config(dataset, num_classes=2, split='train') -> Config:
    return Config(
        {
            'default_scope': 'mmdet',
            'model': {
                'backbone': {'type': 'ResNet', 'num_classes': 1000},
                'rpn_head': {'num_classes': 1},
                'bbox_head': {'num_classes': num_classes},
            },
            f'{split}_dataloader': {'dataset': dataset},
        }
    )


def refused(cfg, match=None, **options) -> str:
    with pytest.raises(UserError, match=match) as caught:
        check_config(cfg, **options)
    return str(caught.value)


def repeat(dataset):
    return {'type': 'RepeatDataset', 'times': 2, 'dataset': dataset}


WRAPPERS = {
    'plain': lambda d: d,
    'repeat': repeat,
    'balanced': lambda d: {'type': 'ClassBalancedDataset', 'oversample_thr': 0.1, 'dataset': d},
    'mixed': lambda d: {'type': 'MultiImageMixDataset', 'pipeline': [], 'dataset': d},
    'concat': lambda d: {'type': 'ConcatDataset', 'datasets': [d]},
    'concat of repeat': lambda d: {'type': 'ConcatDataset', 'datasets': [repeat(d)]},
}


@pytest.mark.parametrize('wrapper', WRAPPERS)
@pytest.mark.parametrize('split', ['train', 'val', 'test'])
def test_data_sets_behind_wrappers_are_checked(data_root, wrapper, split):
    wrap = WRAPPERS[wrapper]
    cfg = config(wrap(coco(data_root)), split=split)
    (report,) = check_config(cfg)
    assert report.counts['cell'].total == 1
    for name in ('CocoDataset', 'mmdet.CocoDataset', 'mmrank.CheckedCocoDataset'):
        cfg = config(wrap(coco(data_root, 'bad.json', type=name)), split=split)
        assert refused(cfg, 'negative size').startswith(f'{split}_dataloader.dataset')
    for other in ('VOCDataset', 'CocoPanopticDataset', 'CocoCaption'):
        dataset = wrap(coco(data_root, 'bad.json', type=other))
        assert check_config(config(dataset, split=split)) == []
    dataset = wrap(coco(data_root, 'bad.json', backend_args={'backend': 'petrel'}))
    assert check_config(config(dataset, split=split)) == []


def test_num_classes_and_names(data_root):
    cfg = config(coco(data_root))
    heads = [{'num_classes': 2}, {'num_classes': 4}]
    cfg.model = {'roi_head': {'bbox_head': heads, 'mask_head': {'num_classes': 5}}}
    message = refused(cfg, 'model.roi_head.bbox_head.1.num_classes is 4')
    assert 'model.roi_head.mask_head.num_classes is 5' in message
    assert 'bbox_head.0' not in message
    dataset = coco(data_root, classes=None)
    refused(config(dataset), "'metainfo' is not set")
    refused(config(dataset, num_classes=80), '80 of 80 names')
    refused(config(coco(data_root, classes='cell'), 1), r"classes=\('cell',\)")
    assert check_config(config(coco(data_root, classes=('cell',)), 1))
    names = data_root / 'names.txt'
    names.write_text('cell\ndot\n')
    assert check_config(config(coco(data_root, classes=str(names))))


def test_training_on_nothing_is_refused(data_root, splits):
    empty = coco(data_root, 'empty.json')
    assert check_config(config(empty))
    empty['filter_cfg'] = {'filter_empty_gt': True}
    refused(config(empty), 'drops images without objects')
    assert check_config(config({**empty, 'test_mode': True}, split='val'))
    splits('crowds.json', lambda d: [x.update(iscrowd=1) for x in d['annotations']])
    crowds = coco(data_root, 'crowds.json')
    refused(config(crowds), 'crowds.json: each object has iscrowd=1')
    assert check_config(config(crowds, split='val'))


def val_config(data_root, splits, metric, **changes):
    def take_one_class(document):
        document['categories'].pop()
        document['annotations'].pop()

    splits('val.json', take_one_class)
    cfg = two_splits(data_root, 'ann.json', 'val.json', 'val.json')
    cfg.val_dataloader.dataset.update(test_mode=True, **changes)
    cfg.val_evaluator.type = metric
    return cfg


def test_a_split_may_lack_the_last_classes_if_the_metric_knows(data_root, splits):
    ours = 'mmrank.CocoMetric'
    assert "add the class to 'categories'" in refused(val_config(data_root, splits, ours))
    part = dict(metainfo=dict(classes=('cell',)))
    check_config(val_config(data_root, splits, ours, **part))
    check_config(val_config(data_root, splits, ours, **part, indices=1))
    assert 'num_classes' in refused(val_config(data_root, splits, 'CocoMetric', **part))
    other = dict(metainfo=dict(classes=('dot',)))
    assert 'num_classes' in refused(val_config(data_root, splits, ours, **other))
    # So may a part of the images.
    cfg = val_config(data_root, splits, 'CocoMetric', indices=1, **part)
    cfg.model.bbox_head.num_classes = 1
    cfg.pop('train_dataloader')
    message = refused(cfg, 'val_dataloader.dataset.indices takes a part')
    assert "Fix: type='mmrank.CocoMetric'" in message


def test_images_below_min_size_are_counted(data_root):
    (report,) = check_config(config(coco(data_root, filter_cfg=dict(min_size=32))))
    assert '2 of 2 images have a side shorter than min_size=32' in str(report.warnings[0])
    (report,) = check_config(config(coco(data_root, filter_cfg=dict(min_size=20))))
    assert not report.warnings


def test_files_that_may_lack_annotations(data_root, splits):
    cfg = config(coco(data_root))
    cfg.test_dataloader = {'dataset': coco(data_root, 'absent.json')}
    assert len(check_config(cfg)) == 1
    refused(cfg, 'does not exist', splits=['test'])
    splits('unlabelled.json', lambda d: d.pop('annotations'))
    # The second file of a training, and that of a submission.
    parts = [coco(data_root), coco(data_root, 'unlabelled.json', data_prefix={'img': 'img'})]
    joined = {'type': 'ConcatDataset', 'datasets': parts}
    assert check_config(config(joined))[1].num_annotations == 0
    refused(config({**joined, 'datasets': parts[::-1]}), "no 'annotations'")
    cfg = config(coco(data_root, 'unlabelled.json'), split='test')
    refused(cfg, "no 'annotations'")
    cfg.test_evaluator = {'type': 'CocoMetric', 'format_only': True}
    assert check_config(cfg)


def two_splits(root, train, val, evaluator=None, folder='other/') -> Config:
    cfg = config(train if isinstance(train, dict) else coco(root, train))
    cfg.val_dataloader = {'dataset': coco(root, val, data_prefix={'img': folder})}
    if evaluator is not None:
        cfg.val_evaluator = {'type': 'CocoMetric', 'ann_file': str(root / evaluator)}
    return cfg


def test_files_number_the_classes_alike(data_root, splits):
    train, other = splits('train.json'), splits('val.json', lambda d: d['categories'].reverse())
    message = "label 0 is 'cell' in .*train.json.* and 'dot' in .*val.json"
    refused(two_splits(data_root, train, other), message)
    refused(two_splits(data_root, train, train, other), message)
    joined = {'type': 'ConcatDataset', 'datasets': [coco(data_root, train), coco(data_root, other)]}
    refused(two_splits(data_root, joined, train), message)
    # Other ids, and classes that are not trained on, change no label.
    renumbered = splits('ids.json', lambda d: d['categories'].insert(0, {'id': 9, 'name': 'x'}))
    assert check_config(two_splits(data_root, train, renumbered))


def test_images_of_two_splits_are_reported(data_root, splits):
    train, val = splits('train.json'), splits('val.json', lambda d: d['annotations'].pop())
    for file, folder, is_shared in (
        (val, 'img/', True),
        (train, 'img', True),
        (val, 'other', False),
    ):
        reports = check_config(two_splits(data_root, train, file, folder=folder))
        kinds = [problem.kind for report in reports for problem in report.warnings]
        assert kinds == ['images in two splits'] * is_shared


@pytest.mark.parametrize(
    'change',
    [
        lambda d: d['annotations'].pop(),
        lambda d: d['annotations'][0].update(bbox=[2, 1, 5, 5]),
        lambda d: d['annotations'][0].update(category_id=2),
        lambda d: d['images'][1].update(width=30),
        lambda d: d['images'][1].update(file_name='3.png'),
        lambda d: d['images'].append({**d['images'][0], 'id': 3, 'file_name': '3.png'}),
    ],
)
def test_the_evaluator_has_the_file_of_the_data_set(data_root, splits, change):
    train, val = splits('train.json'), splits('val.json')
    splits('same.json', lambda d: d['annotations'].reverse())
    assert check_config(two_splits(data_root, train, val, 'same.json'))
    splits('other.json', change)
    cfg = two_splits(data_root, train, val, 'other.json')
    refused(cfg, 'has other images or objects than val_dataloader')


def test_the_evaluator_of_joined_data_sets(data_root, splits):
    def moved(document):
        for part, key in (('images', 'id'), ('annotations', 'image_id')):
            for entry in document[part]:
                entry[key] += 10
        for image in document['images']:
            image['file_name'] = f'b{image["file_name"]}'
            (data_root / 'other' / image['file_name']).write_bytes(b'x')

    train, one, two = splits('train.json'), splits('one.json'), splits('two.json', moved)
    whole = merge_coco({x: json.loads((data_root / x).read_text()) for x in (one, two)})
    for part, key in (('images', 'id'), ('annotations', 'image_id')):
        for entry in whole[part]:
            entry[key] += 8 if entry[key] > 2 else 0
    (data_root / 'whole.json').write_text(json.dumps(whole))
    for image in whole['images']:
        image['file_name'] = image['file_name'].replace('b1.png', 'b9.png')
    (data_root / 'renamed.json').write_text(json.dumps(whole))

    def joined(evaluator, *files):
        cfg = two_splits(data_root, train, files[0])
        names = [coco(data_root, x, data_prefix={'img': 'other/'}) for x in files]
        cfg.val_dataloader.dataset = {'type': 'ConcatDataset', 'datasets': names}
        cfg.val_evaluator = evaluator
        return cfg

    def metric(name):
        return {'type': 'CocoMetric', 'ann_file': str(data_root / name)}

    assert check_config(joined(metric('whole.json'), one, two))
    assert check_config(joined([metric('one.json')], one, one))
    each = {'type': 'MultiDatasetsEvaluator', 'dataset_prefixes': ['one', 'two']}
    assert check_config(joined({**each, 'metrics': [metric(one), metric(two)]}, one, two))
    swapped = joined({**each, 'metrics': [metric(two), metric(one)]}, one, two)
    refused(swapped, r'image id 1 is absent in it and .* in the data set')
    for file, words in ((one, 'image id 11 is absent in it'), ('renamed.json', r"is \('b9.png', ")):
        assert 'Fix: one file with all images' in refused(joined(metric(file), one, two), words)
    splits('same.json')
    message = 'image id . is in several data sets.*MultiDatasetsEvaluator'
    refused(joined(metric('whole.json'), one, 'same.json'), message)


@pytest.mark.parametrize('wrapper', WRAPPERS)
def test_masks_that_a_pipeline_loads_are_there(data_root, splits, wrapper):
    splits('some.json', lambda d: d['annotations'][0].update(segmentation=[[1, 1, 5, 1, 5, 5]]))
    load = [{'type': 'LoadAnnotations', 'with_bbox': True, 'with_mask': True}]
    dataset = coco(data_root, 'some.json', pipeline=load)
    message = refused(config(WRAPPERS[wrapper](dataset)), r'object without a mask \(1 found')
    assert 'annotations[1] (id 2, image_id 2): ' in message
    checked = {**dataset, 'type': 'mmrank.CheckedCocoDataset'}
    with pytest.raises(UserError, match='object without a mask'):
        DATASETS.build({**checked, 'pipeline': [{**load[0], 'type': 'mmdet.LoadAnnotations'}]})
    splits(
        'all.json',
        lambda d: [a.update(segmentation=[[1, 1, 5, 1, 5, 5]]) for a in d['annotations']],
    )
    assert check_config(config(WRAPPERS[wrapper](coco(data_root, 'all.json', pipeline=load))))


def test_an_image_of_another_size_ends_loading(data_root):
    pipeline = [{'type': 'mmdet.LoadImageFromFile'}, {'type': 'mmdet.Resize', 'scale': (8, 8)}]
    checked = coco(data_root, pipeline=pipeline, type='mmrank.CheckedCocoDataset')
    cv2.imwrite(str(data_root / 'img/1.png'), np.zeros((20, 20, 3), np.uint8))
    dataset = DATASETS.build(checked)
    assert dataset[0]['img_shape'] == (8, 8)
    cv2.imwrite(str(data_root / 'img/1.png'), np.zeros((20, 40, 3), np.uint8))
    with pytest.raises(UserError, match=r'1\.png is 40 x 20, and .*ann.json has 20 x 20'):
        dataset[0]


def test_checked_data_set_builds_through_the_registry(data_root):
    from mmdet.datasets import CocoDataset

    checked = coco(data_root, pipeline=[])
    plain = DATASETS.build({**checked, 'type': 'mmdet.CocoDataset'})
    checked['type'] = 'mmrank.CheckedCocoDataset'
    for registry in (DATASETS, ROOT_DATASETS):
        dataset = registry.build(checked)
        assert isinstance(dataset, CocoDataset)
        assert len(dataset) == 2
        assert dataset.get_data_info(0) == plain.get_data_info(0)
    checked['ann_file'] = 'bad.json'
    with pytest.raises(UserError, match='negative size'):
        DATASETS.build(checked)
    cfg = config({**checked, 'ann_file': 'ann.json'})
    assert check_config(cfg)
    refused(cfg, 'unreadable image file', verify_images=True)


@pytest.mark.parametrize(
    'config',
    [
        dict(train_dataloader=dict(dataset=dict(type='CIFAR10'))),
        dict(
            default_scope='mmpretrain',
            train_dataloader=dict(dataset=dict(type='CustomDataset', ann_file='train.txt')),
        ),
    ],
)
def test_a_classifier_does_not_wait_for_mmdet(config):
    code = (
        'import sys; from mmrank.datasets.checks.coco_check import check_config; '
        f"check_config({config!r}); sys.exit('mmdet.datasets' in sys.modules)"
    )
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0
