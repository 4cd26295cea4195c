"""Plans are fair and each of their options exists; what the model index and READMEs name is there.

Rows of detectors are compared in ``test_detection_configs.py``.
"""

import pytest
import yaml
from mmengine.config import ConfigDict
from published_configs import FOLDERS, LEAVES, PLANS, ROOT, leaves_without_result, load, rows

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')

from plans.config_plan import read_plan
from plans.tuning import check_splits

DATA = ('train_dataloader', 'val_dataloader', 'test_dataloader', 'test_evaluator', 'train_cfg')
SCHEDULE = ('optim_wrapper', 'param_scheduler')
PAPERS = '../tools/research/papers'
# Keys that the rows of a plan share, apart from the loss and what is tuned.
COMPARISONS = {
    'clip/grocery_losses': ('model', *DATA, *SCHEDULE),
    'long_tail/grocery_losses': ('model', *DATA, *SCHEDULE, 'custom_hooks'),
    'metric_learning/grocery_losses': (*DATA, *SCHEDULE),
    'soprc/omniglot_losses': ('model', *DATA, *SCHEDULE),
    'soprc/omniglot_folds': ('model', *DATA, *SCHEDULE),
    f'{PAPERS}/stable_ap/table6 small': ('model', *DATA, *SCHEDULE, 'custom_hooks'),
    f'{PAPERS}/stable_ap/table6 chest-xray': ('model', *DATA, *SCHEDULE),
    f'{PAPERS}/isogclr/unimodal small_lt': ('model', *DATA, *SCHEDULE),
    f'{PAPERS}/isogclr/unimodal imagenet100_200e': ('model', *DATA, *SCHEDULE),
    f'{PAPERS}/isogclr/captions small': ('model', *DATA, *SCHEDULE),
    f'{PAPERS}/isogclr/captions cc3m': ('model', *DATA, *SCHEDULE),
}


@pytest.mark.parametrize('path', PLANS, ids=lambda p: f'{p.parent.name}-{p.stem}')
def test_every_method_has_the_same_budget(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = read_plan(path)
    check_splits(plan)
    assert len({len(list(m.choices())) for m in plan.methods if m.grid}) <= 1
    for method, (config, options) in zip(plan.methods, rows(path).values()):
        cfg = load(config, options)
        for key in method.grid:
            node = cfg
            for part in key.split('.')[:-1]:
                node = node[int(part) if part.isdigit() else part]
            assert isinstance(node, dict), key
        assert '_delete_' not in str(cfg.to_dict()), 'replaces a part that is not there'


def _comparable(cfg, keys):
    """A config without its loss and what comes with it."""
    head = cfg.model.get('head', cfg.model)
    if head.get('type') == 'mmrank.ImageTextInBatchHead':  # plain inner products
        cfg.model.pop('head')
        cfg.model.head = ConfigDict(type='mmrank.ImageTextContrastHead')
        cfg.model.pop('normalize')
    for key in ('loss', 'memory'):
        head.pop(key, None)
    # A memory holds one label an image; a validation on the way changes no training.
    cfg.train_dataloader.dataset.pop('hierarchy', None)
    cfg.train_cfg.pop('val_interval', None)
    return {key: cfg.get(key) for key in keys}


@pytest.mark.parametrize('name', COMPARISONS)
def test_rows_differ_in_the_loss_only(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan, _, set_name = name.partition(' ')
    found = [
        _comparable(load(config, options), COMPARISONS[name])
        for config, options in rows(FOLDERS / f'{plan}.yaml', set_name).values()
    ]
    assert len(found) >= 3
    assert all(one == found[0] for one in found)


def test_model_index_has_the_measured_and_the_printed():
    listed = yaml.safe_load((ROOT / 'model-index.yml').read_text('utf-8'))['Import']
    assert sorted(listed) == sorted(
        str(path.relative_to(ROOT)) for path in FOLDERS.glob('*/metafile.yml')
    )
    measured, without = 0, leaves_without_result()
    for file in listed:
        content = yaml.safe_load((ROOT / file).read_text('utf-8'))
        collections = {one['Name'] for one in content['Collections']}
        for model in content['Models']:
            path = ROOT / model['Config']
            assert path in LEAVES
            assert model['Name'] == path.stem
            assert model['In Collection'] in collections
            assert model['Name'] not in without
            measured += 'Results' in model
    assert measured == 4
