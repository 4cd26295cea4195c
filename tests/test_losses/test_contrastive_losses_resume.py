"""The state per sample in mmengine's runner."""

import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import Dataset

from mmrank.registry import MODELS

SAMPLES = 12


class Views(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return dict(inputs=torch.randn(2, 6, generator=g), sample_idx=index)


class Contrastive(BaseModel):
    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4)
        self.loss = MODELS.build(loss)

    def forward(self, inputs, sample_idx, mode='tensor'):
        view1, view2 = self.linear(inputs).unbind(1)
        return dict(loss=self.loss(view1, view2, sample_idx))


def runner(work_dir, epochs, num_samples=SAMPLES, resume=False, **kwargs):
    loss = dict(type='mmrank.ISogCLRLoss', num_samples=num_samples, eta=0.1, **kwargs)
    config = Config(dict(work_dir=str(work_dir)))
    return Runner(
        Contrastive(loss),
        work_dir=str(work_dir),
        train_dataloader=dict(
            dataset=Views(),
            sampler=dict(type='DefaultSampler', shuffle=True, seed=3),
            batch_size=5,
            collate_fn=dict(type='default_collate'),
            num_workers=0,
        ),
        train_cfg=dict(by_epoch=True, max_epochs=epochs),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.5, momentum=0.9)),
        custom_hooks=[dict(type='SyncBuffersHook'), dict(type='EMAHook', update_buffers=True)],
        default_scope='mmengine',
        resume=resume,
        cfg=config,
        experiment_name=f'{work_dir.name}-{epochs}-{resume}-{num_samples}',
    )


@pytest.mark.parametrize('storage', ['device', 'host'])
def test_resumed_run_is_the_same(tmp_path, storage):
    whole = runner(tmp_path / 'whole', 4, storage=storage)
    whole.train()
    runner(tmp_path / 'parts', 2, storage=storage).train()
    resumed = runner(tmp_path / 'parts', 4, resume=True, storage=storage)
    resumed.train()
    assert resumed.epoch == 4
    expected = whole.model.state_dict()
    assert expected['loss.temperature.tau'].unique().numel() == SAMPLES
    for key, values in resumed.model.state_dict().items():
        assert torch.equal(values, expected[key]), key
