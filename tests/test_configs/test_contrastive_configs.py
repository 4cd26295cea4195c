"""Every published contrastive config loads, trains, and says what it is."""

import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS, init_default_scope

pytest.importorskip('mmpretrain')
from mmpretrain.datasets import CIFAR10, CIFAR100
from mmpretrain.structures import DataSample

from mmrank import losses
from mmrank.datasets.long_tail.class_subset import exponential_sizes

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'configs/isogclr'
CONFIGS = sorted(FOLDER.glob('[rcl]*.py'))
LEARNERS = [x for x in CONFIGS if not x.stem.startswith('linear_')]
LINEAR = [x for x in CONFIGS if x.stem.startswith('linear_')]
METHODS = {
    'simclr': losses.InfoNCELoss,
    'sogclr': losses.SogCLRLoss,
    'isogclr': losses.ISogCLRLoss,
    'tau-simclr': losses.TaUSimCLRLoss,
}
SIZES = {
    'cifar10': 50000,
    'cifar100': 50000,
    'cifar10-lt': int(exponential_sizes(10, 5000, 100).sum()),
    'cifar100-lt': int(exponential_sizes(100, 500, 100).sum()),
    'imagenet100': 126689,
    'inaturalist2018': 437513,
}


@cache
def _read(path):
    return Config.fromfile(path)


def load(path):
    cfg = copy.deepcopy(_read(path))
    init_default_scope(cfg.default_scope)
    return cfg


def shrink(cfg):
    """The same network, narrow, on one process."""
    neck = cfg.model.neck
    if cfg.model.backbone.type == 'mmpretrain.ResNet':
        cfg.model.backbone.update(depth=18, base_channels=8, norm_cfg=dict(type='BN'))
        neck.in_channels = 64
    neck.update(hid_channels=32, out_channels=32, norm_cfg=dict(type='BN1d'))


def samples(n):
    return [DataSample(metainfo=dict(sample_idx=7 * i)).set_gt_label(i % 10) for i in range(n)]


@pytest.mark.parametrize('path', LEARNERS, ids=lambda p: p.stem)
def test_learner_trains_and_gives_features(path):
    cfg = load(path)
    network, method, *_, data = path.stem.split('_')
    neck = dict(cfg.model.neck)
    if network != 'conv3':
        assert neck['hid_channels'] == neck['out_channels'] == 8192
        assert cfg.model.backbone.depth == int(network[1:])
    shrink(cfg)
    model = MODELS.build(dict(cfg.model, data_preprocessor=cfg.data_preprocessor))
    loss = model.loss_module
    assert type(loss) is METHODS[method]
    if 'simclr' not in method and network != 'conv3':
        assert loss.num_samples == SIZES[data]
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    size = 16 if network == 'conv3' else 64
    images = torch.randint(0, 255, (4, 3, size, size), dtype=torch.uint8)
    inputs = images if network == 'conv3' else [images, images.flip(3)]
    before = [x.clone() for x in model.backbone.parameters()]
    log = model.train_step(dict(inputs=inputs, data_samples=samples(4)), wrapper)
    assert log['loss'].isfinite()
    wrapper.param_groups[0]['lr']  # built with groups
    assert any(not torch.equal(x, y) for x, y in zip(before, model.backbone.parameters()))
    model.eval()
    out = model.val_step(dict(inputs=images, data_samples=samples(4)))
    assert out[0].feature.isfinite().all()
    for hook in cfg.custom_hooks:
        HOOKS.build(hook)
    for metric in cfg.test_evaluator:
        METRICS.build(metric)


@pytest.mark.parametrize('path', LEARNERS, ids=lambda p: p.stem)
def test_twins_differ_by_the_loss_alone(path):
    network, method, rest = path.stem.split('_', 2)
    twin = load(path.with_name(f'{network}_simclr_{rest}.py'))
    cfg = load(path)
    if method == 'tau-simclr':  # one output more for the temperature
        cfg.model.neck.out_channels -= 1
    for one in (cfg, twin):
        one.model.pop('loss')
        one.custom_hooks = [x for x in one.custom_hooks if x['type'] != 'mmrank.TemperatureHook']
    assert cfg.to_dict() == twin.to_dict()


@pytest.mark.parametrize('path', LINEAR, ids=lambda p: p.stem)
def test_linear_evaluation_trains_the_last_layer_only(path):
    cfg = load(path)
    cfg.model.backbone.update(depth=18, base_channels=8, init_cfg=None)
    cfg.model.head.update(in_channels=64, topk=(1,))
    model = MODELS.build(dict(cfg.model, data_preprocessor=cfg.data_preprocessor)).train()
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trained == ['head.fc.weight', 'head.fc.bias']
    classes = cfg.data_preprocessor.num_classes
    assert model.head.num_classes == classes
    before = copy.deepcopy(model.backbone.state_dict())
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    images = torch.randint(0, 255, (4, 3, 64, 64), dtype=torch.uint8)
    data = dict(inputs=list(images), data_samples=samples(4))
    assert model.train_step(data, wrapper)['loss'].isfinite()
    for name, values in model.backbone.state_dict().items():
        assert torch.equal(values, before[name]), name


def test_linear_evaluation_takes_the_backbone_of_a_checkpoint(tmp_path):
    learnt = load(FOLDER / 'r18_isogclr_128-400e_cifar10.py')
    shrink(learnt)
    learner = MODELS.build(learnt.model)
    file = str(tmp_path / 'epoch_1.pth')
    torch.save(dict(state_dict=learner.state_dict()), file)
    cfg = load(FOLDER / 'linear_r18_256-100e_cifar10.py')
    cfg.model.backbone.update(base_channels=8)
    cfg.model.head.in_channels = 64
    cfg.model.backbone.init_cfg.checkpoint = file
    model = MODELS.build(cfg.model)
    model.init_weights()
    expected = learner.backbone.state_dict()
    for name, values in model.backbone.state_dict().items():
        assert torch.equal(values, expected[name]), name


@pytest.mark.parametrize(
    'path',
    [x for x in CONFIGS if 'cifar' in x.stem and x.stem.startswith(('r18_simclr', 'linear'))],
    ids=lambda p: p.stem,
)
def test_cifar_data_of_a_config(path, tmp_path):
    # 20 images a class stand for the data set; counts are those of the ratio.
    cfg = load(path)
    host = CIFAR100 if 'cifar100' in path.stem else CIFAR10
    names = host.METAINFO['classes']
    classes = len(names)
    labels = np.tile(np.arange(classes), 20)
    for split in ('train', 'test'):
        np.savez(
            tmp_path / f'{split}.npz',
            images=np.zeros((len(labels), 8, 8, 3), np.uint8),
            labels=labels,
            classes=np.array(names),
        )
    loaders = [cfg.train_dataloader, cfg.test_dataloader]
    sizes = []
    for loader in loaders:
        parts = loader.dataset.get('datasets', [loader.dataset])
        for part in parts:
            part['data_root'] = str(tmp_path)
            part['imbalance_ratio'] = min(part['imbalance_ratio'], 20)
        dataset = DATASETS.build(loader.dataset)
        sizes.append(len(dataset))
        item = dataset[len(dataset) - 1]
        inputs = item['inputs']
        views = inputs if isinstance(inputs, list) else [inputs]
        assert all(x.shape == (3, 224, 224) for x in views)
        assert item['data_samples'].sample_idx == len(dataset) - 1
    ratio = 20 if path.stem.endswith('-lt') else 1
    expected = int(exponential_sizes(classes, 20, ratio).sum())
    assert sizes[0] == expected
    linear = path.stem.startswith('linear')
    assert sizes[1] == 20 * classes + (0 if linear else expected)


def test_metafile_names_every_config():
    meta = yaml.safe_load((FOLDER / 'metafile.yml').read_text())
    named = {model['Config'] for model in meta['Models']}
    assert named >= {f'configs/isogclr/{x.name}' for x in LEARNERS}
    for model in meta['Models']:
        assert (ROOT / model['Config']).is_file()
        assert model['Name'] == Path(model['Config']).stem
    listed = (ROOT / 'model-index.yml').read_text()
    assert 'configs/isogclr/metafile.yml' in listed
