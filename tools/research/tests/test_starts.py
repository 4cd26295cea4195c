"""The sets of the papers' plans build, and have the settings of the text.

Rows of each plan train two steps in ``tests/configs/test_classifier_configs.py``; that data in the
layout of the real ones are read shows ``tests/data``.
"""

from fnmatch import fnmatchcase

import pytest
import yaml
from mmengine.registry import MODELS, init_default_scope
from mmengine.utils import import_modules_from_strings
from published_configs import ROOT, check_data, load, rows, without_downloads

pytest.importorskip('mmpretrain')

PLANS = ROOT / 'tools/research/papers'
#: Iterations, steps and their factor, and the classes of the training split.
SCHEDULES = {
    'soprc/losses/sop': (50000, [15000, 30000], 0.1, 10181),
    'soprc/losses/vehicleid': (100000, [40000, 80000], 0.1, 11817),
    'soprc/losses/inaturalist': (130000, [80000, 110000], 0.1, 5115),
    'soprc/losses/sop_trainval': (50000, [15000, 30000], 0.1, 11318),
    'soprc/losses/vehicleid_trainval': (100000, [40000, 80000], 0.1, 13134),
    'soprc/losses/inaturalist_trainval': (130000, [80000, 110000], 0.1, 5690),
    'stable_ap/table[24]/sop': (100000, [60000, 80000], 0.1, 10181),
    'stable_ap/table[24]/vehicleid': (160000, [120000, 150000], 0.3, 11817),
    'stable_ap/table[24]/inaturalist': (270000, [150000, 220000], 0.3, 5115),
}
#: Classes to train and to validate on, and the ranks at which a search is measured.
SEARCHES = {
    '/sop': (10181, 1137, (1, 10, 100, 1000)),
    '/vehicleid': (11817, 1317, (1, 5)),
    '/inaturalist': (5115, 575, (1, 4, 16, 32)),
}
#: SOPRC by the authors' code: lam1, lam2, largest prior, momentum of v.
SOPRC_OF_CODE = {
    'soprc/losses/sop_code': (1, 5, 0.01, 0.1),
    'soprc/losses/vehicleid_code': (5, 25, 0.1, 0.1),
    'soprc/losses/inaturalist_code': (1, 5, 0.1, 0.001),
}
SETS = [
    f'{path.parent.name}/{path.stem}/{name}'
    for path in sorted(PLANS.glob('*/*.yaml'))
    for name in yaml.safe_load(path.read_text('utf-8'))['sets']
    if path.parent.name == 'in_batch' or not name.startswith('small')
]


def first_match(table, name):
    """What a table says of a set; None for a set that it does not name."""
    return next((found for pattern, found in table.items() if fnmatchcase(name, pattern)), None)


def rows_of(name):
    """Config and overrides of each row of a set."""
    plan, _, set_name = name.rpartition('/')
    return rows(PLANS / f'{plan}.yaml', set_name)


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def loss_of(head):
    """The loss as the head of a config builds it."""
    return MODELS.build(dict(head.loss, num_classes=head.num_classes))


def check_stable_ap(head, is_search):
    """The settings of the paper; those of a search are for cosines, others for sigmoids."""
    loss = loss_of(head)
    assert (loss.rho, loss.weights, loss.reduction) == ('auto', 'normalised', 'sum')
    assert (loss.mean_positive.mode, loss.mean_positive.momentum) == ('exact', 0.01)
    if not is_search:
        assert loss.activation == 'sigmoid'
        return
    loss.expect_cosines()  # as the head asks
    assert loss.scope == 'global'
    assert (loss.a, loss.t, loss.score_penalty) == (0.1, 2.0, 0.0)
    assert (loss.surrogate.tau, loss.bound) == (0.3, 1 + 4 / 0.3)


def check_soprc_of_code(name, cfg):
    loss = loss_of(cfg.model.head)
    found = (loss.lam1, loss.lam2, loss.prior.maximum, loss.score_vector.momentum)
    assert found == SOPRC_OF_CODE[name]
    assert loss.scope == 'global'
    assert loss.per_batch  # semi_variance='batch'
    assert loss.prior.from_counts
    assert loss.score_vector.vector.size(1) == 100
    assert (loss.surrogate.tau, loss.tau2) == (0.1, 0.001)
    assert 'mmrank.ClassCountsHook' in [hook.type for hook in cfg.custom_hooks]


@pytest.mark.parametrize('name', [x for x in SETS if x.startswith(('soprc', 'stable_ap'))])
def test_every_row_builds_and_has_the_settings(name):
    pytest.importorskip('pytorch_metric_learning')
    pytest.importorskip('mmdet')
    paper, plan, _ = name.split('/')
    schedule = first_match(SCHEDULES, name)
    found = rows_of(name)
    if paper == 'soprc' and schedule:
        assert len(found) == (6 if name.endswith('trainval') else 10)
    for row, given in found.items():
        cfg = load(*given)
        assert '_delete_' not in str(cfg.to_dict())
        init_default_scope(cfg.default_scope)
        without_downloads(cfg.model)
        if 'sorter' not in str(cfg.model):  # a file that a GPU makes
            MODELS.build(cfg.model if plan in ('table5', 'table6') else cfg.model.head)
        if schedule:
            policy = cfg.param_scheduler[0]
            values = (cfg.train_cfg.max_iters, policy.milestones, policy.gamma)
            assert (*values, cfg.model.head.num_classes) == schedule
        optimizer = cfg.optim_wrapper.optimizer
        if paper == 'stable_ap' and row not in ('ssd', 'yolov3'):
            s = 0 if plan in ('table5', 'table6') else 1
            assert (optimizer.type, optimizer.momentum, optimizer.s) == ('mmrank.SUM', 0.9, s)
            assert not s or optimizer.weight_decay == 4e-5
        if paper == 'stable_ap' and plan != 'table3':
            is_exact = "'mean_mode': 'exact'" in str(cfg.model)
            hooks = [hook.type for hook in cfg.get('custom_hooks', [])]
            assert is_exact == ('mmrank.PreviousWeightsHook' in hooks), row
        if (name.startswith('stable_ap/table2') or plan == 'table6') and row == 'stable_ap':
            check_stable_ap(cfg.model.head, is_search=plan == 'table2')
        if name in SOPRC_OF_CODE:
            is_ours = row == 'soprc' or row.startswith('auc')
            assert (optimizer.type, optimizer.get('nesterov', False)) == (
                ('SGD', True) if is_ours else ('Adam', False)
            )
            if row == 'soprc':
                check_soprc_of_code(name, cfg)
        search = next((found for data, found in SEARCHES.items() if data in name), None)
        if search and (name in SOPRC_OF_CODE or plan == 'table2'):
            parts = cfg.train_dataloader.dataset, cfg.val_dataloader.dataset
            assert cfg.model.head.num_classes == search[0]
            assert [x.num_val_classes for x in parts] == 2 * [search[1]]
            assert [x.split for x in parts] == ['train', 'val']
            assert tuple(cfg.test_evaluator.recall_at) == search[2]
        if paper == 'soprc' and schedule:
            rate = 0.01 if '/sop' in name else 0.001
            expected = ('SGD', rate) if row == 'soprc' else ('Adam', 1e-5)
            assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == (*expected, 4e-4)
            assert cfg.train_dataloader.batch_size == 224
            if row == 'soprc':
                loss = cfg.model.head.loss
                assert (loss.momentum, loss.tau1, loss.tau2) == (0.001, 0.1, 0.001)
                assert loss.vector_length == 100


@pytest.mark.parametrize('name', SETS)
def test_data_of_every_row_are_known(name):
    for given in rows_of(name).values():
        cfg = load(*given)
        import_modules_from_strings(**cfg.get('custom_imports', dict(imports=None)))
        check_data(cfg)
