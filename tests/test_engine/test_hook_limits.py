"""The hooks say at the start what they cannot do in a runner."""

import os

import pytest
import resume_run
import torch
from mmengine.hooks import EMAHook, SyncBuffersHook
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.runner import FlexibleRunner, Runner

from mmrank.engine.hooks import PreviousWeightsHook, rng_state_hook
from mmrank.engine.hooks.rng_state_hook import _has_own_statistics
from mmrank.errors import UserError
from mmrank.losses import StableAPLoss


def warnings_of(work_dir, change=lambda config: None, build=Runner.from_cfg):
    """Warnings of the start of a training."""
    config = resume_run.make_config(str(work_dir))
    config.experiment_name = f'run-{os.urandom(4).hex()}'
    config.train_cfg.max_epochs = 1
    config.train_dataloader.dataset.length = 4
    change(config)
    runner = build(config)
    found = []
    runner.logger.warning = found.append
    runner.train()
    return '\n'.join(found)


def test_nothing_to_say(tmp_path):
    assert 'Hook' not in warnings_of(tmp_path)


def test_the_other_runner_is_refused(tmp_path):
    def change(config):
        config.pop('model_wrapper_cfg')
        config.strategy = {'type': 'SingleDeviceStrategy'}
        config.env_cfg = {'dist_cfg': {'backend': 'gloo'}}

    with pytest.raises(UserError, match='Fix: leave out runner_type'):
        warnings_of(tmp_path, change, FlexibleRunner.from_cfg)
    assert not list(tmp_path.glob('*.pth'))


def test_statistics_of_other_processes_are_reported(tmp_path, monkeypatch):
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


class Model(BaseModel):
    """A model with a loss that needs the hook."""

    def __init__(self):
        super().__init__()
        self.loss = StableAPLoss(mean_mode='exact')

    def forward(self, *args, **kwargs):
        return {}


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            {
                'optim_wrapper': OptimWrapperDict(
                    a=OptimWrapper(torch.optim.SGD([torch.ones(1)], lr=1))
                )
            },
            'got OptimWrapperDict and Model',
        ),
        (
            {'model': torch.nn.Sequential(StableAPLoss(mean_mode='exact'))},
            'got NoneType and Sequential',
        ),
    ],
    ids=['optimisers', 'model'],
)
def test_previous_weights_are_refused(changes, message):
    class Here:
        model = Model()
        optim_wrapper = None

    for name, value in changes.items():
        setattr(Here, name, value)
    with pytest.raises(ValueError, match=message):
        PreviousWeightsHook().before_train(Here())
