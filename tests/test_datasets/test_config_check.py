"""Checks of configs: data sets behind wrappers, and num_classes."""

import json

import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS as ROOT_DATASETS

from mmrank.datasets.checks.coco_check import check_config
from mmrank.errors import UserError
from mmrank.registry import DATASETS

pytest.importorskip('mmdet')


@pytest.fixture
def data_root(tmp_path):
    """A folder with ``ann.json``, ``bad.json`` and ``img/1.png``."""
    (tmp_path / 'img').mkdir()
    (tmp_path / 'img' / '1.png').write_bytes(b'x')
    box = {'id': 1, 'image_id': 1, 'category_id': 1, 'iscrowd': 0}
    document = {
        'images': [{'id': 1, 'file_name': '1.png', 'width': 20, 'height': 20}],
        'annotations': [{**box, 'bbox': [1, 1, 5, 5], 'area': 25}],
        'categories': [{'id': 1, 'name': 'cell'}, {'id': 2, 'name': 'dot'}],
    }
    (tmp_path / 'ann.json').write_text(json.dumps(document))
    document['annotations'][0]['bbox'] = [1, 1, -5, 5]
    (tmp_path / 'bad.json').write_text(json.dumps(document))
    document['annotations'] = []
    (tmp_path / 'empty.json').write_text(json.dumps(document))
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
    cfg = config(wrap(coco(data_root, 'bad.json')), split=split)
    with pytest.raises(UserError, match='negative size') as caught:
        check_config(cfg)
    assert str(caught.value).startswith(f'{split}_dataloader.dataset')


@pytest.mark.parametrize(
    'data_type', ['CocoDataset', 'mmdet.CocoDataset', 'mmrank.CheckedCocoDataset']
)
def test_all_names_of_coco_data_sets_are_known(data_root, data_type):
    dataset = {**coco(data_root, 'bad.json'), 'type': data_type}
    with pytest.raises(UserError, match='negative size'):
        check_config(config(dataset))


def test_other_data_sets_are_passed_over(data_root):
    for data_type in ('VOCDataset', 'CocoPanopticDataset', 'CocoCaption'):
        dataset = {**coco(data_root, 'bad.json'), 'type': data_type}
        assert check_config(config(dataset, split='val')) == []
    dataset = {**coco(data_root, 'bad.json'), 'backend_args': None}
    dataset['backend_args'] = {'backend': 'petrel'}
    assert check_config(config(dataset)) == []


@pytest.mark.parametrize('num_classes', [1, 3, 80])
def test_num_classes_must_fit_the_data(data_root, num_classes):
    with pytest.raises(UserError) as caught:
        check_config(config(coco(data_root), num_classes))
    message = str(caught.value)
    assert f'model.bbox_head.num_classes is {num_classes}' in message
    assert 'set num_classes=2' in message
    assert 'rpn_head' not in message


def test_num_classes_of_cascades_and_masks(data_root):
    cfg = config(coco(data_root))
    cfg.model = {
        'roi_head': {
            'bbox_head': [{'num_classes': 2}, {'num_classes': 4}],
            'mask_head': {'num_classes': 5},
        }
    }
    with pytest.raises(UserError) as caught:
        check_config(cfg)
    message = str(caught.value)
    assert 'model.roi_head.bbox_head.1.num_classes is 4' in message
    assert 'model.roi_head.mask_head.num_classes is 5' in message
    assert 'bbox_head.0' not in message


def test_forgotten_metainfo_is_explained(data_root):
    dataset = coco(data_root, classes=None)
    with pytest.raises(UserError, match="'metainfo' is not set"):
        check_config(config(dataset))
    with pytest.raises(UserError, match='80 of 80 names'):
        check_config(config(dataset, num_classes=80))


def test_one_class_needs_its_comma(data_root):
    with pytest.raises(UserError, match="classes=\\('cell',\\)"):
        check_config(config(coco(data_root, classes='cell'), 1))
    assert check_config(config(coco(data_root, classes=('cell',)), 1))


def test_classes_from_a_file(data_root):
    names = data_root / 'names.txt'
    names.write_text('cell\ndot\n')
    assert check_config(config(coco(data_root, classes=str(names))))


def test_training_on_nothing_is_refused(data_root):
    empty = coco(data_root, 'empty.json')
    assert check_config(config(empty))
    empty['filter_cfg'] = {'filter_empty_gt': True}
    with pytest.raises(UserError, match='nothing is left to train on'):
        check_config(config(empty))
    assert check_config(config({**empty, 'test_mode': True}, split='val'))


def test_missing_test_file_is_left_to_testing(data_root):
    cfg = config(coco(data_root))
    cfg.test_dataloader = {'dataset': coco(data_root, 'absent.json')}
    assert len(check_config(cfg)) == 1
    with pytest.raises(UserError, match='does not exist'):
        check_config(cfg, splits=['test'])


def test_submission_files_need_no_annotations(data_root):
    path = data_root / 'ann.json'
    document = json.loads(path.read_text())
    del document['annotations']
    path.write_text(json.dumps(document))
    cfg = config(coco(data_root), split='test')
    with pytest.raises(UserError, match="no 'annotations'"):
        check_config(cfg)
    cfg.test_evaluator = {'type': 'CocoMetric', 'format_only': True}
    assert check_config(cfg)


def test_checked_data_set_builds_through_the_registry(data_root):
    from mmdet.datasets import CocoDataset

    checked = coco(data_root, pipeline=[])
    plain = DATASETS.build({**checked, 'type': 'mmdet.CocoDataset'})
    checked['type'] = 'mmrank.CheckedCocoDataset'
    for registry in (DATASETS, ROOT_DATASETS):
        dataset = registry.build(checked)
        assert isinstance(dataset, CocoDataset)
        assert len(dataset) == 1
        assert dataset.get_data_info(0) == plain.get_data_info(0)
    checked['ann_file'] = 'bad.json'
    with pytest.raises(UserError, match='negative size'):
        DATASETS.build(checked)
    checked.update(ann_file='ann.json', verify_images=True)
    with pytest.raises(UserError, match='unreadable image file'):
        DATASETS.build(checked)
