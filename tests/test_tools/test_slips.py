"""Slips of a user at the command line: one message that names the field, the value and the fix."""

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / 'tools'
CONFIG = """\
from torch import nn
default_scope = 'mmengine'
custom_imports = dict(imports=['slip_model'])
model = dict(type='SlipModel')
work_dir = 'out'
train_dataloader = dict(dataset=dict(type='SlipData'), batch_size=2,
                        sampler=dict(type='DefaultSampler', shuffle=False))
train_cfg = dict(by_epoch=True, max_epochs=1)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))
default_hooks = dict(logger=dict(type='LoggerHook', interval=100))
"""
MODULE = """\
import torch
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS

@MODELS.register_module(force=True)
class SlipModel(BaseModel):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
    def forward(self, inputs, mode):
        return dict(loss=(self.weight * torch.stack(inputs)).square().sum())

@DATASETS.register_module(force=True)
class SlipData(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return dict(inputs=torch.ones(1) * i)
"""


@pytest.fixture
def train(tmp_path, monkeypatch, run_script):
    (tmp_path / 'slip_model.py').write_text(MODULE)
    (tmp_path / 'mine.py').write_text(CONFIG.partition('\n')[2])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop('slip_model', None)
    return lambda *options: run_script(TOOLS / 'train.py', 'mine.py', *options)


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        (['modle.head.tau=1'], ["no 'modle'", 'Fix: model']),
        (
            ['optim_wrapper.optimiser.lr=1'],
            ["'optim_wrapper.optimiser'", 'optim_wrapper.optimizer'],
        ),
        (['lr=0.1'], ["no 'lr'"]),
        (['optim_wrapper.optimizer.lr'], ['has no value', 'KEY=VALUE']),
        (['optim_wrapper.optimizer.type=Adm'], ["type='Adm'", "Fix: 'Adam'"]),
        (['train_cfg.max_epochs=two'], ['cannot be built', 'two']),
        (['model.tau=1'], ['cannot be built', 'tau']),
        (['train_dataloader.dataset=a.json'], ["dataset='a.json'", 'ann_file']),
        (['optim_wrapper.optimizer.lr=1e30'], ['weight has NaN', 'optim_wrapper.optimizer.lr']),
    ],
)
def test_a_slip_is_one_message(options, words, train, tmp_path):
    status, _, errors = train('--cfg-options', *options)
    assert status == 2, errors
    message = errors.rpartition('error: ')[2]
    assert 'Traceback' not in message
    for word in words:
        assert word in message
    assert not list(tmp_path.rglob('*.pth'))


def test_what_the_runner_reads_may_be_added(train, tmp_path):
    status, _, errors = train('--cfg-options', 'randomness.seed=1', 'log_level=ERROR')
    assert status == 0, errors
    assert list(tmp_path.rglob('*.pth'))
