"""The published sets of stable AP and SOPRC have their settings, and train their first steps."""

import json
import os

import cv2
import numpy as np
import pytest
import yaml
from chest_xray_tree import write_chest_xrays
from made_up_data import FORMS, write_cifar, write_retrieval
from published_configs import ROOT, load, rows

pytest.importorskip('mmpretrain')
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.datasets import CIFAR10, CIFAR100
from random_weights import without_downloads
from starting_plans import start

PLANS = ROOT / 'tools/research/papers/stable_ap'
SETS = [
    (path.stem, name)
    for path in sorted(PLANS.glob('*.yaml'))
    for name in yaml.safe_load(path.read_text('utf-8'))['sets']
    if not name.startswith('small')
]
#: The paper's iterations, steps and their factor.
SCHEDULES = {
    'sop': (100000, [60000, 80000], 0.1),
    'vehicleid': (160000, [120000, 150000], 0.3),
    'inaturalist': (270000, [150000, 220000], 0.3),
}
#: The row that is trained in full.
OURS = {'table4': 'row_5'}
#: A step of 112 images at 224 takes minutes on a CPU; so do 32 at 512.
SMALLER = {
    'retrieval': {
        'train_dataloader.batch_size': '8',
        'train_dataloader.sampler.batch_size': '8',
        'train_dataloader.dataset.num_val_classes': '2',
        'model.head.num_classes': '4',
        'model.image_encoder.0.backbone.init_cfg': 'None',
    },
    'table5': {'train_dataloader.batch_size': '2', 'model.backbone.init_cfg': 'None'},
    'cifar': {},
    'chest': {'train_dataloader.batch_size': '8', 'model.backbone.init_cfg': 'None'},
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def kind_of(plan, name):
    """The key of a set in SMALLER."""
    if plan in SMALLER:
        return plan
    return name.split('-')[0].rstrip('0123456789') if plan == 'table6' else 'retrieval'


@pytest.mark.parametrize(('plan', 'name'), SETS)
def test_every_row_builds_and_has_the_settings(plan, name):
    pytest.importorskip('pytorch_metric_learning')
    pytest.importorskip('mmdet')
    for row, given in rows(PLANS / f'{plan}.yaml', name).items():
        cfg = load(*given)
        assert '_delete_' not in str(cfg.to_dict())
        is_exact = "'mean_mode': 'exact'" in str(cfg.model)
        hooks = [hook.type for hook in cfg.get('custom_hooks', [])]
        if plan != 'table3':
            assert is_exact == ('mmrank.PreviousWeightsHook' in hooks), row
        init_default_scope(cfg.default_scope)
        optimizer = cfg.optim_wrapper.optimizer
        if plan in ('table5', 'table6'):
            if row not in ('ssd', 'yolov3'):
                assert (optimizer.type, optimizer.momentum, optimizer.s) == ('mmrank.SUM', 0.9, 0)
            without_downloads(cfg.model)
            MODELS.build(cfg.model)
            continue
        assert (optimizer.type, optimizer.momentum, optimizer.s) == ('mmrank.SUM', 0.9, 1)
        assert optimizer.weight_decay == 4e-5
        schedule = cfg.param_scheduler[0]
        found = (cfg.train_cfg.max_iters, schedule.milestones, schedule.gamma)
        assert found == SCHEDULES[name]
        if 'sorter' not in str(cfg.model):  # a file that a GPU makes
            MODELS.build(cfg.model.head)


def _write_coco(data, image):
    """Four images of two objects, of which one is small, in both parts."""
    for part in ('train2017', 'val2017'):
        (data / part).mkdir(parents=True)
        names = [f'{i:012d}.jpg' for i in range(1, 5)]
        for name in names:
            os.symlink(image, data / part / name)
        boxes = [[10, 10, 60, 50], [70, 20, 25, 30]]
        content = {
            'images': [
                {'id': i, 'file_name': name, 'width': 120, 'height': 90}
                for i, name in enumerate(names, 1)
            ],
            'annotations': [
                {
                    'id': 2 * i + j,
                    'image_id': i,
                    'category_id': 1 + 16 * j,
                    'bbox': box,
                    'area': box[2] * box[3],
                    'iscrowd': 0,
                }
                for i in range(1, 5)
                for j, box in enumerate(boxes)
            ],
            'categories': [{'id': 1, 'name': 'person'}, {'id': 17, 'name': 'cat'}],
        }
        path = data / f'annotations/instances_{part}.json'
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """All data sets in their real folders, with made-up images."""
    root = tmp_path_factory.mktemp('stable_ap')
    pixels = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    cv2.imwrite(str(root / 'image.jpg'), pixels)
    write_retrieval(root / 'data', root / 'image.jpg', dict.fromkeys(FORMS, 6))
    _write_coco(root / 'data/coco', root / 'image.jpg')
    write_chest_xrays(root / 'data/chest_xray14')
    for name, data_set in (('cifar10', CIFAR10), ('cifar100', CIFAR100)):
        names = data_set.METAINFO['classes']
        write_cifar(root / 'data' / name, names, {'train': 500, 'test': 100}, size=32)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(('plan', 'name'), [x for x in SETS if x[0] != 'table3'])
def test_set_starts(plan, name, folder, monkeypatch):
    path = str(PLANS / f'{plan}.yaml')
    method = OURS.get(plan, 'stable_ap')
    options = SMALLER[kind_of(plan, name)]
    start(path, name, method, folder, monkeypatch, **options)


SOPRC = ROOT / 'tools/research/papers/soprc'
#: Learning rate, steps and iterations of the text, and the classes of the training split.
TEXT = {
    'sop': (0.01, [15000, 30000], 50000, 10181),
    'vehicleid': (0.001, [40000, 80000], 100000, 11817),
    'inaturalist': (0.001, [80000, 110000], 130000, 5115),
    'sop_trainval': (0.01, [15000, 30000], 50000, 11318),
    'vehicleid_trainval': (0.001, [40000, 80000], 100000, 13134),
    'inaturalist_trainval': (0.001, [80000, 110000], 130000, 5690),
}
SOPRC_SETS = [
    (plan, name)
    for plan in ('losses', 'ablation', 'batch_sizes')
    for name in yaml.safe_load((SOPRC / f'{plan}.yaml').read_text('utf-8'))['sets']
    if not name.startswith('small')
]
#: All training classes, of the trainval splits too.
CLASSES = {'Stanford_Online_Products': 11318, 'VehicleID': 13134, 'inaturalist2018': 5690}
#: A step of the real 224 images takes minutes on a CPU.
SOPRC_SMALLER = {
    'train_dataloader.batch_size': '8',
    'train_dataloader.sampler.batch_size': '8',
    'model.image_encoder.0.init_cfg': 'None',
}


@pytest.mark.parametrize('name', TEXT)
def test_soprc_has_the_settings_of_the_text(name):
    found = rows(SOPRC / 'losses.yaml', name)
    assert len(found) == (6 if name.endswith('trainval') else 10)
    for method, row in found.items():
        cfg = load(*row)
        rate, steps, iterations, classes = TEXT[name]
        optimizer = cfg.optim_wrapper.optimizer
        expected = ('SGD', rate) if method == 'soprc' else ('Adam', 1e-5)
        assert (optimizer.type, optimizer.lr) == expected
        assert optimizer.weight_decay == 4e-4
        schedule = cfg.param_scheduler[0]
        assert (schedule.milestones, schedule.gamma) == (steps, 0.1)
        assert cfg.train_cfg.max_iters == iterations
        assert cfg.model.head.num_classes == classes
        assert cfg.train_dataloader.batch_size == 224
    loss = cfg.model.head.loss
    assert (loss.momentum, loss.tau1, loss.tau2, loss.vector_length) == (0.001, 0.1, 0.001, 100)


@pytest.mark.parametrize(('plan', 'name'), SOPRC_SETS)
def test_every_row_builds(plan, name):
    pytest.importorskip('pytorch_metric_learning')
    for row in rows(SOPRC / f'{plan}.yaml', name).values():
        cfg = load(*row)
        assert '_delete_' not in str(cfg.to_dict())
        init_default_scope(cfg.default_scope)
        MODELS.build(cfg.model.head)


@pytest.fixture(scope='module')
def retrieval_folder(tmp_path_factory):
    """The three data sets; all their images are one file."""
    root = tmp_path_factory.mktemp('retrieval')
    pixels = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    cv2.imwrite(str(root / 'image.jpg'), pixels)
    write_retrieval(root / 'data', root / 'image.jpg', CLASSES)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(('plan', 'name'), SOPRC_SETS)
def test_soprc_set_starts(plan, name, retrieval_folder, monkeypatch):
    method = {'losses': 'soprc', 'ablation': 'row_4', 'batch_sizes': 'batch_56'}[plan]
    start(str(SOPRC / f'{plan}.yaml'), name, method, retrieval_folder, monkeypatch, **SOPRC_SMALLER)
