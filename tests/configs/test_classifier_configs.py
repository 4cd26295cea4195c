"""Every config and plan row on mmpretrain builds, trains two steps and predicts."""

import copy
from types import SimpleNamespace

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import HOOKS, METRICS, MODELS, init_default_scope
from published_configs import FOLDERS, LEAVES, ROOT, check_data, load, rows

pytest.importorskip('mmpretrain')
from mmpretrain.structures import DataSample
from small_config_models import FAMILIES, pixels, view_learner

from mmrank import losses
from mmrank.datasets.long_tail.class_subset import exponential_sizes
from mmrank.engine.hooks import PreviousWeightsHook
from mmrank.losses import HeadLoss

# Stored features, pairs of a table and detectors have files of their own.
PATHS = [
    path
    for path in LEAVES
    if not path.stem.endswith(('_grocery', '_omniglot-pairs', '_bccd', '_coco128', '_demo'))
    and not path.stem.endswith(('_coco', '_lvis-v1'))
    and not path.stem.startswith('two-tower')
]
LINEAR = [path for path in PATHS if path.stem.startswith('linear_')]
LEARNERS = [path for path in PATHS if path not in LINEAR]
# Every loss of a comparison, once for each network: plan, set, and the data by which losses count.
PAPERS = '../tools/research/papers'
SETS = (
    ('soprc/omniglot_losses', '', ''),
    (f'{PAPERS}/stable_ap/table6', 'small', ''),
    (f'{PAPERS}/isogclr/unimodal', 'small_lt', ''),
    (f'{PAPERS}/isogclr/captions', 'small', 'cifar10-captions'),
    *(
        pytest.param(f'{PAPERS}/{plan}', *row, marks=pytest.mark.slow)
        for plan, *row in (
            ('soprc/losses', 'sop', ''),
            ('isogclr/unimodal', 'cifar10-lt_400e', 'cifar10-lt'),
            ('isogclr/unimodal', 'inaturalist_200e', 'inaturalist2018'),
            ('isogclr/temperatures', 'tau_imagenet100', 'imagenet100'),
            ('isogclr/temperatures', 'rho_cifar100-lt', 'cifar100-lt'),
            ('isogclr/temperatures', 'tau-net_cifar100', 'cifar100'),
            ('isogclr/captions', 'cc3m', 'cc3m'),
            ('isogclr/captions', 'cc3m_temperatures', 'cc3m'),
            ('isogclr/captions', 'cc3m_individual', 'cc3m'),
        )
    ),
)
IMAGES = {
    'cifar10': 50000,
    'cifar100': 50000,
    'cifar10-lt': int(exponential_sizes(10, 5000, 100).sum()),
    'cifar100-lt': int(exponential_sizes(100, 500, 100).sum()),
    'imagenet100': 126689,
    'inaturalist2018': 437513,
    'cifar10-captions': 8168,
    'cc3m': 2900000,
}
KINDS = {
    'stable-ap': losses.StableAPLoss,
    'stable-ap-mixup': losses.StableAPLoss,
    'soprc': losses.SOPRCLoss,
    'smooth-ap': losses.SmoothAPLoss,
    'auc-huber': losses.AUCLoss,
    'clip': losses.CLIPLoss,
    'in-batch': losses.InBatchLoss,
    'simclr': losses.InfoNCELoss,
}


def kind_named(stem):
    """The loss that a config's name says; None for evaluations."""
    name = stem.split('_')[1]
    if name == 'isogclr':
        return losses.BimodalISogCLRLoss if stem.startswith('r50-d') else losses.ISogCLRLoss
    return KINDS.get(name)


def loss_of(model):
    return model.loss_module if hasattr(model, 'loss_module') else model.head.loss_module


def predict(model, batch):
    """Predict a batch; ``tests/models`` checks what each family promises of it."""
    images, samples = batch['inputs'], batch['data_samples']
    if type(model).__name__ == 'TwoViewLearner' and isinstance(images, list):
        images = images[0]
    if type(model).__name__ == 'ImageTextDualEncoder':
        for i, sample in enumerate(samples):  # several captions an image
            sample.set_metainfo(dict(text_id=[i, i + 6]))
            sample.set_field([sample.text, sample.text + 's'], 'text')
    model.eval()
    with torch.no_grad():
        found = model.val_step(dict(inputs=images, data_samples=samples))
    assert len(found) == len(samples)
    return found


def check(cfg, kind=None):
    """Build a small copy of a config's model, train it two steps, predict, and evaluate."""
    if str(cfg.model).find('mmrank.PMLLoss') >= 0:
        pytest.importorskip('pytorch_metric_learning')
    init_default_scope(cfg.default_scope)
    batch = FAMILIES[cfg.model.type](cfg)
    cfg.model.setdefault('data_preprocessor', cfg.data_preprocessor)
    model = MODELS.build(cfg.model)
    model.init_weights()
    loss = loss_of(model)
    assert kind is None or type(loss) is kind
    hooks = [HOOKS.build(hook) for hook in cfg.get('custom_hooks', [])]
    names = {type(hook).__name__ for hook in hooks}
    classes = cfg.model.get('head', {}).get('num_classes')
    if getattr(loss, 'wants_class_counts', False):
        assert 'ClassCountsHook' in names
        args = (40,) if cfg.model.type == 'mmpretrain.ImageClassifier' else ()
        loss.set_class_counts([20] * classes, *args)
    if isinstance(loss, losses.InBatchLoss):
        assert 'PairCountsHook' in names
        loss.set_pairs(torch.arange(6), torch.arange(6), (6, 6))
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    for group in wrapper.optimizer.param_groups:
        learned = [getattr(loss, name, None) for name in ('log_tau', 'log_scale', 'logit_bias')]
        if any(x is y for x in group['params'] for y in learned):
            assert group['weight_decay'] == 0
    before = [x.detach().clone() for x in model.parameters() if x.requires_grad]
    model.train()
    runner = SimpleNamespace(model=model, optim_wrapper=wrapper)
    for _ in range(2):
        for hook in hooks:
            if isinstance(hook, PreviousWeightsHook):
                hook.before_train_iter(runner, 0, batch)
        logs = model.train_step(batch, wrapper)
    assert logs['loss'].isfinite()
    after = [x for x in model.parameters() if x.requires_grad]
    assert any(not torch.equal(x, y) for x, y in zip(before, after))
    if isinstance(loss, HeadLoss) and classes != 1:
        assert loss.diagnostics['num_positive'] > 0
    found = predict(model, batch)
    for evaluators in (cfg.get('val_evaluator'), cfg.get('test_evaluator')):
        for evaluator in evaluators if isinstance(evaluators, list) else [evaluators]:
            metric = evaluator and METRICS.build(evaluator)
            if metric and cfg.model.type == 'mmrank.ImageTextDualEncoder':
                metric.process({}, [x.to_dict() for x in found])
                assert metric.results
    return loss


@pytest.mark.parametrize('path', LEARNERS, ids=lambda p: p.stem)
def test_config_trains_and_predicts(path):
    cfg = load(path)
    loader = cfg.train_dataloader
    sampler_size = loader.sampler.get('batch_size', loader.batch_size)
    assert loader.batch_size == sampler_size
    assert loader.sampler.get('infinite', True)
    loss = cfg.model.get('loss') or cfg.model.head.loss
    data = path.stem.split('_')[-1]
    if data in IMAGES and not path.stem.startswith('conv3_'):
        assert loss.get('num_samples', IMAGES[data]) == IMAGES[data]
    check(cfg, kind_named(path.stem))


@pytest.mark.parametrize(('plan', 'set_name', 'data'), SETS)
def test_rows_train_and_predict(plan, set_name, data, monkeypatch):
    monkeypatch.chdir(ROOT)
    for row, (path, options) in rows(FOLDERS / f'{plan}.yaml', set_name).items():
        cfg = load(path, options)
        loss = cfg.model.get('loss') or cfg.model.head.loss
        own = data or path.stem.split('_')[-1]
        if own in IMAGES and loss.get('num_samples') and (data or 'conv3_' not in path.stem):
            assert loss.num_samples == IMAGES[own], row
        check(cfg)


@pytest.mark.parametrize('path', PATHS, ids=lambda p: p.stem)
def test_data_sets_and_transforms_are_known(path):
    check_data(load(path))


@pytest.mark.parametrize('path', LINEAR, ids=lambda p: p.stem)
def test_linear_evaluation_trains_the_last_layer_only(path):
    cfg = load(path)
    init_default_scope(cfg.default_scope)
    cfg.model.backbone.update(depth=18, base_channels=8, init_cfg=None)
    cfg.model.head.update(in_channels=64, topk=(1,))
    model = MODELS.build(dict(cfg.model, data_preprocessor=cfg.data_preprocessor)).train()
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trained == ['head.fc.weight', 'head.fc.bias']
    assert model.head.num_classes == cfg.data_preprocessor.num_classes
    before = copy.deepcopy(model.backbone.state_dict())
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    samples = [DataSample().set_gt_label(i) for i in range(4)]
    data = dict(inputs=list(pixels(4, 3, 64, 64)), data_samples=samples)
    assert model.train_step(data, wrapper)['loss'].isfinite()
    for name, values in model.backbone.state_dict().items():
        assert torch.equal(values, before[name]), name


def test_linear_evaluation_takes_the_backbone_of_a_checkpoint(tmp_path):
    learnt = load(FOLDERS / 'isogclr/r18_isogclr_128-400e_cifar10.py')
    init_default_scope(learnt.default_scope)
    view_learner(learnt)
    learner = MODELS.build(learnt.model)
    file = str(tmp_path / 'epoch_1.pth')
    torch.save(dict(state_dict=learner.state_dict()), file)
    cfg = load(FOLDERS / 'isogclr/linear_r18_256-100e_cifar10.py')
    cfg.model.backbone.update(base_channels=8)
    cfg.model.head.in_channels = 64
    cfg.model.backbone.init_cfg.checkpoint = file
    model = MODELS.build(cfg.model)
    model.init_weights()
    expected = learner.backbone.state_dict()
    for name, values in model.backbone.state_dict().items():
        assert torch.equal(values, expected[name]), name
