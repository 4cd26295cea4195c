"""Configs on grocery photographs train on a small copy of such data."""

import json

import numpy as np
import pytest
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from published_configs import FOLDERS, LEAVES, load, rows

pytest.importorskip('mmpretrain')
pytest.importorskip('timm')

from mmrank.datasets.transforms import FeatureCache, _opened

# Each config, and one row for each kind of loss that needs more of the model than the configs'; the
# other rows differ by a loss that has tests of its own.
CONFIGS = {
    p.parent.name + '-' + p.stem: (p, {})
    for p in LEAVES
    if p.stem.endswith('_grocery') and 'frozen' not in p.stem
}
for folder, row in (('metric_learning', 'xbm'), ('clip', 'isogclr'), ('long_tail', 'softmax')):
    CONFIGS[f'{folder}-{row}'] = rows(FOLDERS / folder / 'grocery_losses.yaml')[row]
CLASSES, EACH = 81, 3


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """81 products with three photographs in each split, stored features."""
    root = tmp_path_factory.mktemp('work') / 'data' / 'grocery'
    root.mkdir(parents=True)
    names = [f'product {i}' for i in range(CLASSES)]
    (root / 'hierarchy.txt').write_text(''.join(f'{i % 9}\t{x}\n' for i, x in enumerate(names)))
    (root / 'products.txt').write_text('\n'.join(names) + '\n')
    everything = []
    for split in ('train', 'val', 'test'):
        lines = []
        captions = []
        for label in range(CLASSES):
            for number in range(EACH):
                path = f'{split}/{label}/{number}.jpg'
                name = names[label]
                everything.append((path, name))
                lines.append(f'{path} {label}\n')
                caption = dict(image=path, caption=[name, f'It is {name}.'], label=name)
                captions.append(json.dumps(caption) + '\n')
        (root / f'{split}.txt').write_text(''.join(lines))
        (root / f'captions_{split}.jsonl').write_text(''.join(captions))
    (root / 'images.txt').write_text(''.join(f'{path}\t{name}\n' for path, name in everything))
    for path, _ in everything:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    rng = np.random.default_rng(0)
    paths = [str(root / path) for path, _ in everything]
    for name, shape in (('stage6', (192, 2, 2)), ('pooled', (1280, 1, 1))):
        views = rng.normal(size=(2, len(paths), *shape))
        FeatureCache.write(root / name, paths, [iter(view) for view in views], {})
    return root


# A row trains its config on another loss.
@pytest.mark.parametrize(
    'name', [pytest.param(x, marks=() if '_grocery' in x else pytest.mark.slow) for x in CONFIGS]
)
def test_config_trains_and_is_tested(name, data, tmp_path, monkeypatch):
    if name.endswith('xbm'):
        pytest.importorskip('pytorch_metric_learning')
    monkeypatch.chdir(data.parents[1])  # the paths of configs start at data/
    _opened.cache_clear()
    cfg = load(*CONFIGS[name])
    init_default_scope(cfg.default_scope)
    parts = cfg.model.get('image_encoder', cfg.model.get('backbone'))
    for part in parts if isinstance(parts, list) else [parts]:
        part.pop('init_cfg', None)  # the published weights
    if name.startswith('clip') and 'num_samples' in cfg.model.head.loss:
        cfg.model.head.loss.num_samples = 2 * CLASSES * EACH
    cfg.train_cfg.max_iters = cfg.max_iters = 2
    cfg.train_cfg.val_interval = 3
    cfg.work_dir = str(tmp_path)
    cfg.launcher = 'none'
    runner = Runner.from_cfg(cfg)
    trained = [(name, x) for name, x in runner.model.named_parameters() if x.requires_grad]
    before = [value.clone() for _, value in trained]
    runner.train()
    for name, value in trained:
        assert value.dim() <= 1 or value.isfinite().all(), name
    changed = sum(not value.equal(old) for (_, value), old in zip(trained, before))
    assert changed > len(before) / 2
    metrics = runner.test()
    assert all(np.isfinite(value) for value in metrics.values())
