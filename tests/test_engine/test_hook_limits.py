"""The hooks say at the start what they cannot do in a runner."""

import os

import pytest
import resume_run
import torch
from mmengine.hooks import EMAHook, SyncBuffersHook
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.registry import LOOPS
from mmengine.runner import BaseLoop, FlexibleRunner, Runner

from mmrank.engine.hooks import PreviousWeightsHook
from mmrank.engine.resume import limits
from mmrank.engine.resume.limits import _has_own_statistics
from mmrank.errors import UserError
from mmrank.losses import StableAPLoss


@LOOPS.register_module(force=True)
class OwnLoop(BaseLoop):
    """A loop of a user, which does nothing."""

    def __init__(self, runner, dataloader, **kwargs):
        super().__init__(runner, dataloader)
        self.epoch = self.iter = self.max_epochs = self.max_iters = 0

    def run(self):
        self.runner.call_hook('before_train')


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


def test_loop_of_the_user(tmp_path):
    def change(config):
        config.train_cfg = {'type': 'OwnLoop'}
        config.val_cfg = config.val_dataloader = config.val_evaluator = None
        config.param_scheduler = None
        config.custom_hooks = [{'type': 'mmrank.RNGStateHook'}]

    warned = warnings_of(tmp_path, change)
    assert 'OwnLoop is not a loop of mmengine' in warned


def test_no_checkpoint_to_put_the_state_in(tmp_path):
    def change(config):
        config.default_hooks.checkpoint = None

    warned = warnings_of(tmp_path, change)
    assert 'no hook saves checkpoints' in warned


def test_statistics_of_other_processes_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, 'get_world_size', lambda: 2)
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
