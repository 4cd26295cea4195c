"""Every image-text config loads, builds, trains and predicts."""

import copy
from functools import cache
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import HOOKS, METRICS, MODELS, init_default_scope

pytest.importorskip('mmpretrain')
from mmpretrain.registry import DATASETS, TRANSFORMS
from mmpretrain.structures import DataSample

from mmrank import losses

ROOT = Path(__file__).parents[2] / 'configs' / 'clip'
# Those on stored features: test_grocery_configs.py.
CONFIGS = sorted(path for path in ROOT.glob('*.py') if not path.stem.endswith('grocery'))
NAMED = {
    'clip': losses.CLIPLoss,
    'cyclip': losses.CyCLIPLoss,
    'siglip': losses.SigLIPLoss,
    'sogclr': losses.SogCLRLoss,
    'isogclr': losses.BimodalISogCLRLoss,
    'in-batch': losses.InBatchLoss,
}


@cache
def read(path):
    return Config.fromfile(path)


def load(path):
    return copy.deepcopy(read(path))


def batch(size, texts):
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (6, 3, size, size), dtype=torch.uint8, generator=g)
    samples = []
    for i in range(6):
        text_id = i if isinstance(texts[i], str) else [i, i + 6]
        info = dict(sample_idx=2 * i, image_id=i, text_id=text_id)
        sample = DataSample(metainfo=info).set_gt_label(i)
        sample.set_field(texts[i], 'text')
        samples.append(sample)
    return dict(inputs=images, data_samples=samples)


@pytest.mark.parametrize('path', CONFIGS, ids=lambda p: p.stem)
def test_config_trains_and_predicts(path):
    cfg = load(path)
    init_default_scope(cfg.default_scope)
    small = path.stem.startswith('conv3')
    if not small:
        backbone = cfg.model.image_encoder[0]
        assert backbone.init_cfg.checkpoint == 'torchvision://resnet50'
        # The same network, narrow and without the downloads.
        backbone.update(init_cfg=None, base_channels=8, stem_channels=8)
        cfg.model.image_channels = 256
        encoder = cfg.model.text_encoder
        assert encoder.type == 'mmrank.HuggingFaceTextEncoder'
        assert encoder.name_or_path == 'distilbert-base-uncased'
        cfg.model.text_encoder = dict(type='mmrank.TextTransformer', channels=16, num_layers=1)
    cfg.model.data_preprocessor = cfg.data_preprocessor
    model = MODELS.build(cfg.model)
    model.init_weights()
    loss = model.head.loss_module
    kind = NAMED.get(path.stem.split('_')[1])
    assert kind is None or type(loss) is kind
    hooks = {type(HOOKS.build(hook)).__name__ for hook in cfg.custom_hooks}
    if kind is losses.InBatchLoss:
        assert 'PairCountsHook' in hooks
        loss.set_pairs(torch.arange(6), torch.arange(6), (6, 6))
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    size, texts = 16 if small else 32, [f'a photo of {x}' for x in 'abcdef']
    model.train()
    for _ in range(2):
        logs = model.train_step(batch(size, texts), wrapper)
    assert logs['loss'].isfinite()
    for group in wrapper.optimizer.param_groups:
        learned = [getattr(loss, name, None) for name in ('log_tau', 'log_scale', 'logit_bias')]
        if any(x is y for x in group['params'] for y in learned):
            assert group['weight_decay'] == 0
    model.eval()
    with torch.no_grad():
        found = model.val_step(batch(size, [[x, x + 's'] for x in texts]))
    assert len(found) == 6
    assert found[0].text_feature.shape == (2, len(found[0].image_feature))
    if model.prompts is not None:
        assert found[0].pred_score.shape == (len(model.prompts.classes),)
    for name in ('val_evaluator', 'test_evaluator'):
        evaluators = cfg[name]
        for config in evaluators if isinstance(evaluators, list) else [evaluators]:
            metric = METRICS.build(config)
            metric.process({}, [x.to_dict() for x in found])
            assert metric.results


@pytest.mark.parametrize('name', ['cifar10-captions', '30e_cc3m'])
def test_twins_differ_in_the_head_only(name):
    twins = [load(p).to_dict() for p in CONFIGS if p.stem.endswith(name)]
    assert len(twins) >= 4
    for twin in twins:
        twin['model'].pop('head')
        twin['model'].pop('normalize', None)
        twin.pop('custom_hooks')
        assert twin == twins[0]


@pytest.mark.parametrize('path', CONFIGS, ids=lambda p: p.stem)
def test_data_sets_and_transforms_are_known(path):
    cfg = load(path)
    init_default_scope(cfg.default_scope)
    for name in ('train', 'val', 'test'):
        dataset = cfg[f'{name}_dataloader'].dataset
        assert DATASETS.get(dataset.type) is not None
        for transform in dataset.pipeline:
            TRANSFORMS.build(transform)


def test_number_of_samples_is_that_of_the_data():
    for path in ROOT.glob('conv3-*.py'):
        loss = load(path).model.head.loss
        assert loss.get('num_samples', 8168) == 8168


def test_small_batches_of_sampler_and_loader_agree():
    loader = load(ROOT / 'conv3-text_clip_cifar10-captions.py')
    loader = loader.train_dataloader
    assert loader.batch_size == loader.sampler.batch_size
