"""What every hook keeps to, and what hooks say that they cannot do."""

import shutil
from types import SimpleNamespace

import pytest
import resume_run
import torch
from mmengine.hooks import EMAHook, SyncBuffersHook
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.registry import DATASETS
from mmengine.runner import FlexibleRunner, Runner
from training_ends import assert_same, contents

from mmrank.engine.hooks import PreviousWeightsHook, rng_state_hook
from mmrank.engine.hooks.rng_state_hook import _has_own_statistics
from mmrank.errors import UserError
from mmrank.losses import StableAPLoss
from mmrank.registry import HOOKS as OURS


def warnings_of(work_dir, change=lambda config: None, build=Runner.from_cfg):
    """Warnings of the start of a training."""

    def shorten(config):
        config.train_cfg.max_epochs = 1
        config.train_dataloader.dataset.length = 4
        change(config)

    runner = resume_run.runner_of(work_dir, change=shorten, build=build)
    runner.train()
    return '\n'.join(runner.warned)


def test_the_other_runner_is_refused(tmp_path):
    def change(config):
        config.pop('model_wrapper_cfg')
        config.strategy = {'type': 'SingleDeviceStrategy'}
        config.env_cfg = {'dist_cfg': {'backend': 'gloo'}}

    with pytest.raises(UserError, match='Fix: leave out runner_type'):
        warnings_of(tmp_path, change, FlexibleRunner.from_cfg)
    assert not list(tmp_path.glob('*.pth'))


def test_statistics_of_other_processes_are_reported(tmp_path, monkeypatch):
    assert 'Hook' not in warnings_of(tmp_path)
    monkeypatch.setattr(rng_state_hook, 'get_world_size', lambda: 2)
    assert "dict(type='SyncBuffersHook')" in warnings_of(tmp_path)


def test_statistics_that_are_the_same_on_all_processes():
    class Here:
        hooks = ()
        model = torch.nn.Sequential(torch.nn.BatchNorm2d(1))

    assert _has_own_statistics(Here)
    Here.model[0].train = lambda mode: torch.nn.Module.train(Here.model[0], False)  # norm_eval
    assert not _has_own_statistics(Here)
    Here.model = torch.nn.Sequential(torch.nn.SyncBatchNorm(1))
    assert not _has_own_statistics(Here)
    Here.model.append(torch.nn.BatchNorm1d(1))
    assert _has_own_statistics(Here)
    Here.hooks = [SyncBuffersHook()]
    assert not _has_own_statistics(Here)
    Here.hooks.append(EMAHook())
    assert _has_own_statistics(Here)


TWO_OPTIMISERS = OptimWrapperDict(a=OptimWrapper(torch.optim.SGD([torch.ones(1)], lr=1)))
OF_TORCH = torch.nn.Sequential(StableAPLoss(mean_mode='exact'))


EXACT = dict(type='mmrank.StableAPLoss', mean_mode='exact')


@pytest.mark.parametrize(
    ('model', 'wrapper', 'message'),
    [
        (resume_run.NoisyModel(EXACT), TWO_OPTIMISERS, 'got OptimWrapperDict and NoisyModel'),
        (OF_TORCH, None, 'got NoneType and Sequential'),
    ],
)
def test_previous_weights_are_refused(model, wrapper, message):
    with pytest.raises(ValueError, match=message):
        PreviousWeightsHook().before_train(SimpleNamespace(model=model, optim_wrapper=wrapper))


OURS.import_from_location()
NAMES = sorted(OURS.module_dict)
#: Settings without a default.
NEEDED = {'CosineBeta0Hook': {'decay': 2}, 'DeferredReweightingHook': {'begin': 1}}
#: Hooks that refuse to run for nothing, and what of the model they name.
REFUSING = {
    'CosineBeta0Hook': 'the model has no moving average of samples',
    'LinearEvaluationHook': 'the data set of the evaluation has not two parts',
    'PreviousWeightsHook': "no loss of the model has mean_mode='exact'",
}


@DATASETS.register_module(force=True)
class LabelledDataset(resume_run.NoisyDataset):
    """With classes, as mmpretrain's data sets have them."""

    metainfo = {'classes': ('rest', 'third')}  # noqa: RUF012

    def get_data_info(self, index):
        return {'gt_label': int(self.labels[index]), 'sample_idx': index}


def train(work_dir, names=(), epochs=4, resume=False):
    """Checkpoints of the tiny training with more hooks."""

    def change(config):
        for loader in (config.train_dataloader, config.val_dataloader):
            loader.dataset.type = 'LabelledDataset'
        config.train_cfg.max_epochs = epochs

    hooks = [{'type': f'mmrank.{name}', **NEEDED.get(name, {})} for name in names]
    resume_run.runner_of(work_dir, resume, change, hooks=hooks).train()
    return {path.name: contents(path) for path in sorted(work_dir.glob('epoch_*.pth'))}


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    """The checkpoints of a training without the hook."""
    return train(tmp_path_factory.mktemp('plain'))


IDLE = [name for name in NAMES if name not in REFUSING]


@pytest.mark.parametrize(
    'names',
    [
        pytest.param(IDLE, id='all'),
        *(pytest.param([name], id=name, marks=pytest.mark.slow) for name in IDLE),
    ],
)
def test_nothing_changes_where_there_is_nothing_to_do(names, plain, tmp_path):
    """Also not by a resume, and bit for bit."""
    found = train(tmp_path, names)
    assert found.keys() == plain.keys()
    for path, content in found.items():
        assert_same(content, plain[path], path)
    for epoch in (3, 4):
        (tmp_path / f'epoch_{epoch}.pth').unlink()
    again = train(tmp_path, names, resume=True)
    assert_same(again['epoch_4.pth'], plain['epoch_4.pth'], 'epoch_4.pth')
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize('name', REFUSING)
def test_refuses_to_run_for_nothing(name, tmp_path):
    with pytest.raises(ValueError, match=f'{name} is in custom_hooks, but {REFUSING[name]}'):
        train(tmp_path, [name], epochs=1)
