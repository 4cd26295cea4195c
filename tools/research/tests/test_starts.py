"""The sets of the papers' plans have the settings of the text, and what ranks in them is built."""

from fnmatch import fnmatchcase

import pytest
import yaml
from mmengine.registry import MODELS, init_default_scope
from published_configs import ROOT, load, rows
from random_weights import without_downloads

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
SETS = [
    f'{path.parent.name}/{path.stem}/{name}'
    for path in sorted(PLANS.glob('*/*.yaml'))
    for name in yaml.safe_load(path.read_text('utf-8'))['sets']
    if path.parent.name != 'in_batch' and not name.startswith('small')
]


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    'name', [pytest.param(x, marks=[pytest.mark.slow] * x.startswith('isogclr')) for x in SETS]
)
def test_every_row_builds_and_has_the_settings(name):
    pytest.importorskip('pytorch_metric_learning')
    pytest.importorskip('mmdet')
    paper, plan, set_name = name.split('/')
    schedule = next((x for pattern, x in SCHEDULES.items() if fnmatchcase(name, pattern)), None)
    found = rows(PLANS / paper / f'{plan}.yaml', set_name)
    if paper == 'soprc' and schedule:
        assert len(found) == (6 if name.endswith('trainval') else 10)
    for row, given in found.items():
        cfg = load(*given)
        assert '_delete_' not in str(cfg.to_dict())
        init_default_scope(cfg.default_scope)
        without_downloads(cfg.model)
        if 'sorter' not in str(cfg.model):  # a file that a GPU makes
            whole = plan in ('table5', 'table6')
            MODELS.build(cfg.model if whole else cfg.model.get('head') or cfg.model.loss)
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
        if paper == 'soprc' and schedule:
            rate = 0.01 if '/sop' in name else 0.001
            expected = ('SGD', rate) if row == 'soprc' else ('Adam', 1e-5)
            assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == (*expected, 4e-4)
            assert cfg.train_dataloader.batch_size == 224
            if row == 'soprc':
                loss = cfg.model.head.loss
                assert (loss.momentum, loss.tau1, loss.tau2) == (0.001, 0.1, 0.001)
                assert loss.vector_length == 100
