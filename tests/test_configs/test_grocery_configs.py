"""Every config on grocery photographs trains on a small copy of such data."""

import json
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner

pytest.importorskip('mmpretrain')
pytest.importorskip('timm')

from mmrank.datasets.transforms.load_cached_features import FeatureCache, opened
from research.seeds.plan import load_config, read_plan

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(
    path for path in ROOT.glob('configs/[!_]*/*_grocery.py') if 'frozen' not in path.stem
)
# One of each kind of task and head. The others differ from them by the loss alone, which has tests
# of its own.
TRAINED = {
    'efficientnet-lite0_stable-ap_grocery',
    'efficientnet-lite0_xbm_grocery',
    'lite0-text_isogclr_grocery',
}
PLANS = sorted(ROOT.glob('configs/*/grocery_losses.yaml'))
CLASSES, EACH = 81, 3


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """81 products with three photographs in each split, stored features."""
    root = tmp_path_factory.mktemp('work') / 'data' / 'grocery'
    root.mkdir(parents=True)
    names = [f'product {i}' for i in range(CLASSES)]
    (root / 'products.txt').write_text('\n'.join(names) + '\n')
    everything = []
    for split in ('train', 'val', 'test'):
        items = [
            (f'{split}/{label}/{number}.jpg', label)
            for label in range(CLASSES)
            for number in range(EACH)
        ]
        everything += items
        (root / f'{split}.txt').write_text(''.join(f'{path} {label}\n' for path, label in items))
        (root / f'captions_{split}.jsonl').write_text(
            ''.join(
                json.dumps(
                    {
                        'image': path,
                        'caption': [names[label], f'It is {names[label]}.'],
                        'label': names[label],
                    }
                )
                + '\n'
                for path, label in items
            )
        )
    (root / 'images.txt').write_text(
        ''.join(f'{path}\t{names[label]}\n' for path, label in everything)
    )
    for path, _ in everything:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    rng = np.random.default_rng(0)
    paths = [str(root / path) for path, _ in everything]
    for name, shape in (('stage6', (192, 2, 2)), ('pooled', (1280, 1, 1))):
        views = rng.normal(size=(2, len(paths), *shape))
        FeatureCache.write(root / name, paths, map(iter, views), {})
    return root


@pytest.mark.parametrize('path', CONFIGS, ids=lambda p: p.stem)
def test_model_is_built(path, monkeypatch):
    if path.parent.name == 'metric_learning':
        pytest.importorskip('pytorch_metric_learning')
    monkeypatch.chdir(ROOT)
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    cfg.model.pop('zero_shot', None)  # reads a file of the data
    model = MODELS.build(cfg.model)
    assert any(value.requires_grad for value in model.parameters())


@pytest.mark.parametrize(
    'path',
    [
        pytest.param(path, marks=() if path.stem in TRAINED else pytest.mark.slow)
        for path in CONFIGS
    ],
    ids=lambda p: p.stem,
)
def test_config_trains_and_is_tested(path, data, tmp_path, monkeypatch):
    if path.parent.name == 'metric_learning':
        pytest.importorskip('pytorch_metric_learning')
    monkeypatch.chdir(data.parents[1])  # the paths of configs start at data/
    opened.cache_clear()
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    parts = cfg.model.get('image_encoder', cfg.model.get('backbone'))
    for part in parts if isinstance(parts, list) else [parts]:
        part.pop('init_cfg', None)  # the published weights
    if path.parent.name == 'clip' and 'num_samples' in cfg.model.head.loss:
        cfg.model.head.loss.num_samples = 2 * CLASSES * EACH
    cfg.train_cfg.max_iters = cfg.max_iters = 2
    cfg.train_cfg.val_interval = 3
    cfg.work_dir = str(tmp_path)
    cfg.launcher = 'none'
    runner = Runner.from_cfg(cfg)
    before = {
        name: value.clone()
        for name, value in runner.model.named_parameters()
        if value.requires_grad
    }
    runner.train()
    for name, value in runner.model.named_parameters():
        if name in before and before[name].dim() > 1:
            assert value.isfinite().all(), name
    changed = sum(
        not value.equal(before[name])
        for name, value in runner.model.named_parameters()
        if name in before
    )
    assert changed > len(before) / 2
    metrics = runner.test()
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize('path', PLANS, ids=lambda p: p.parent.name)
def test_plan_compares_the_loss_alone(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = read_plan(path)
    assert len(plan.folds or plan.seeds) >= 3
    keys = ('train_dataloader', 'test_dataloader', 'train_cfg')
    keys += ('optim_wrapper', 'param_scheduler', 'test_evaluator')
    first = load_config(plan.methods[0].config)
    for method in plan.methods:
        config = load_config(method.config)
        assert {k: config[k] for k in keys} == {k: first[k] for k in keys}
        assert len(list(method.choices())) >= 3, method.name
