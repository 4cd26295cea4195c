"""The plans of the paper on in-batch bias train as its appendices D and G.2 say."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from in_batch_enumeration import OMEGA, PAIRS, SHAPE, objective, score_matrix
from published_configs import ROOT, load, rows

from make_interactions import write_interactions
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.losses import InBatchLoss
from mmrank.registry import MODELS
from mmrank.runners.build import build_runner
from tools.research.pairs import in_batch_training

PLANS = ROOT / 'tools/research/papers/in_batch'
SETS = [
    (plan, name)
    for plan in ('losses', 'full_gradient')
    for name in yaml.safe_load((PLANS / f'{plan}.yaml').read_text('utf-8'))['sets']
]
MODES = ('unbiased', 'unbiased_omega', 'popularity', 'pos_neg', 'in_batch', 'sogram')


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A folder with the data of the small sets."""
    root = tmp_path_factory.mktemp('pairs')
    write_interactions(root / 'data/interactions')
    return root


@pytest.mark.parametrize(('plan', 'name'), SETS)
def test_rows_differ_in_loss_and_batch_only(plan, name):
    first = None
    for row, (path, options) in rows(PLANS / f'{plan}.yaml', name).items():
        cfg = load(path, options).to_dict()
        loss = cfg['model'].pop('loss')
        mode, has_ratio, ratio = row.rpartition('_1e-')
        if plan == 'losses':
            assert loss['mode'] == mode
            found = cfg['train_dataloader']['sampler'].pop('batch_ratio')
            assert found == pytest.approx(10.0 ** -int(ratio))
        elif has_ratio:
            assert loss['omega'] ** 2 == pytest.approx(10.0 ** -int(ratio), rel=3e-3)
        assert loss['pointwise'] == name.rpartition('_')[2]
        sampling = cfg['train_dataloader']['dataset'].pop('sampling', 'in_batch')
        assert (sampling == 'sogram') == (mode == 'sogram')
        InBatchLoss(**{key: x for key, x in loss.items() if key != 'type'})
        first = first or cfg
        assert cfg == first


@pytest.mark.parametrize('mode', MODES)
def test_objective_is_the_mean_of_the_batches(mode):
    scores = score_matrix().detach()
    pairs = Interactions(*np.array(PAIRS).T, *map(range, SHAPE))
    sampler = SimpleNamespace(batch_size=3)
    loader = SimpleNamespace(
        dataset=SimpleNamespace(interactions=pairs), batch_sampler=SimpleNamespace(sampler=sampler)
    )
    omega = dict(omega=OMEGA) if mode == 'unbiased_omega' else {}
    model = SimpleNamespace(
        pair_loss=InBatchLoss(mode, 'logistic', **omega),
        left=lambda batch: scores[batch['ids']],
        right=lambda batch: torch.eye(SHAPE[1], dtype=scores.dtype)[batch['ids']],
        data_preprocessor=lambda batch: batch,
    )
    found = in_batch_training.Objective(model, loader)()
    assert found == pytest.approx(objective(scores, mode, 'logistic', 3).item())


def runner_of(plan, method, folder, tmp_path, monkeypatch, **options):
    """A whole training of a row of the small sets."""
    row = rows(PLANS / f'{plan}.yaml', 'small_square')[method]
    cfg = load(row[0], {**row[1], **options})
    monkeypatch.chdir(folder)
    cfg.work_dir = str(tmp_path)
    cfg.log_level = 'ERROR'
    cfg.launcher = 'none'
    return cfg, build_runner(cfg)


def test_rate_is_halved_until_nothing_diverges(folder, tmp_path, monkeypatch):
    options = {'default_hooks.usable_rate.patience': '1', 'train_cfg.max_epochs': '50'}
    cfg, runner = runner_of('losses', 'unbiased_1e-1', folder, tmp_path, monkeypatch, **options)
    runner.train()
    (hook,) = [x for x in runner.hooks if isinstance(x, in_batch_training.UsableRateHook)]
    rate = hook.state['rate']
    best = hook.state['best']
    assert math.log2(rate) == int(math.log2(rate)) < 10
    assert runner.optim_wrapper.param_groups[0]['lr'] == rate
    assert hook.objective() <= 100 * hook.state['objective']
    assert runner.epoch < 50
    # A test reports the best on the way.
    cfg.load_from = str(next(tmp_path.glob('epoch_*.pth')))
    cfg.experiment_name = 'tested'
    assert build_runner(cfg).test() == best


def test_lbfgs_ends_at_a_small_gradient(folder, tmp_path, monkeypatch):
    options = {'default_hooks.small_gradient.norm': '1e-4', 'train_cfg.max_epochs': '50'}
    _, runner = runner_of('full_gradient', 'unbiased', folder, tmp_path, monkeypatch, **options)
    runner.train()
    assert runner.epoch < 50
    norms = torch.stack([x.grad.norm() for x in runner.model.parameters()])
    assert norms.norm() <= 1e-4
    assert MODELS.get('FullGradientTwoTower') is type(runner.model)


def test_sizes_of_data(folder, run_script, monkeypatch):
    monkeypatch.chdir(folder)
    config = ROOT / 'configs/in_batch/two-tower8_unbiased-logistic_synthetic.py'
    text = run_script(ROOT / 'tools/research/pairs/sizes.py', config)[1]
    assert '200 x 100, 2,085 pairs, mean popularity 217.4' in text
