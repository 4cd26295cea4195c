"""Plans are fair and each of their options exists; what the model index and READMEs name is there.

Rows of detectors are compared in ``test_detection_configs.py``.
"""

import re

import pytest
import yaml
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope
from published_configs import FOLDERS, LEAVES, PLANS, ROOT, leaves_of_papers, load, read, rows

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from plans.config_plan import read_plan
from plans.loss_names import colours_of
from plans.config_plan import check_splits

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


@pytest.mark.parametrize('path', PLANS, ids=lambda p: f'{p.parent.name}-{p.stem}')
def test_losses_of_a_plan_differ_in_colour(path):
    methods = yaml.safe_load(path.read_text('utf-8')).get('methods', ())
    names = list(dict.fromkeys(re.sub(r'-[\d.]+$', '', x['name']) for x in methods))[:20]
    assert len(set(colours_of(names))) == len(names)


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
    measured, of_papers = 0, leaves_of_papers()
    for file in listed:
        content = yaml.safe_load((ROOT / file).read_text('utf-8'))
        collections = {one['Name'] for one in content['Collections']}
        for model in content['Models']:
            path = ROOT / model['Config']
            assert path in LEAVES
            assert model['Name'] == path.stem
            assert model['In Collection'] in collections
            assert 'Results' in model or path.stem in of_papers
            measured += 'Results' in model
    assert measured == 4


def strangers(key: str, names: list[str]) -> list[str]:
    """Names with the key inside of a longer word, such as ``head`` in ``conv_head``.

    A number may follow: ``bn`` means ``bn1``.
    """
    number = '' if key[-1].isdigit() else r'\d*'
    whole = re.compile(rf'(^|\.){re.escape(key)}{number}(\.|$)')
    return [name for name in names if key in name and not whole.search(name)]


def test_custom_keys_take_no_layer_by_chance():
    pytest.importorskip('timm')
    init_default_scope('mmpretrain')
    for path in LEAVES:
        cfg = read(path)
        keys = cfg.get('optim_wrapper', {}).get('paramwise_cfg', {}).get('custom_keys')
        # Two read files of their data sets when they are built; one of the LARS schedule stands
        # for all.
        if not keys or path.stem.startswith(('r50-distilbert', 'lite0-text')):
            continue
        if path.parent.name == 'isogclr' and path.stem != 'r18_isogclr_128-400e_cifar10':
            continue
        names = [name for name, _ in MODELS.build(cfg.model).named_parameters()]
        for key in keys:
            assert not strangers(key, names), f'{key!r} of {path.name} takes more than it names'
