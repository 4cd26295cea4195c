"""The hook that draws temperatures, inside a real Runner."""

import csv
import logging
from types import SimpleNamespace

import numpy as np
import tiny_runner
import torch
from mmengine.model import BaseModel
from torch import nn
from torch.utils.data import Dataset

from mmrank.engine.hooks import TemperatureHook
from mmrank.losses import ISogCLRLoss

SIZE = 24


class Clusters(Dataset):
    """One large cluster and small ones; items carry their numbers."""

    def __init__(self):
        self.metainfo = dict(classes=('head', 'middle', 'tail'))
        self.labels = np.repeat([0, 1, 2], [16, 6, 2])

    def __len__(self):
        return SIZE

    def get_data_info(self, index):
        """What the sheet shows."""
        image = np.full((4, 4, 3), 10 * index, np.uint8)
        return dict(img=image, gt_label=self.labels[index])

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(int(index))
        x = torch.randn(4, generator=g)
        x[self.labels[index]] += 3
        return dict(inputs=x, ids=index)


class Net(BaseModel):
    """A linear map of two noisy views."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)
        self.contrast = ISogCLRLoss(SIZE, eta=0.05, beta1=1.0)

    def forward(self, inputs, ids=None, mode='loss'):
        views = [self.net(inputs + 0.1 * torch.randn_like(inputs)) for _ in 'ab']
        return dict(loss=self.contrast(*views, ids))


def train(work_dir, epochs, resume=False):
    settings = dict(default_hooks=dict(logger=None), resume=resume)
    hooks = [dict(type='mmrank.TemperatureHook')]
    return tiny_runner.train(Net(), work_dir, Clusters(), epochs, custom_hooks=hooks, **settings)


def steps(path):
    with path.open() as file:
        return [int(row['step']) for row in csv.DictReader(file)]


def test_files_of_a_run_and_of_its_resume(tmp_path):
    runner = train(tmp_path, 2)
    folder = tmp_path / 'temperatures'
    assert steps(folder / 'history_temperature.csv') == [1, 2]
    with (folder / 'samples_temperature.csv').open() as file:
        found = [float(row['tau']) for row in csv.DictReader(file)]
    tau = runner.model.contrast.temperature.tau
    np.testing.assert_allclose(found, tau, rtol=1e-4)
    assert len(set(found)) > 2
    for name in ('history', 'classes', 'sheet'):
        assert (folder / f'{name}_temperature.png').stat().st_size > 2000
    first = (folder / 'history_temperature.csv').read_text()

    (folder / 'history_temperature.csv').unlink()
    train(tmp_path, 3, resume=True)
    assert steps(folder / 'history_temperature.csv') == [1, 2, 3]
    again = (folder / 'history_temperature.csv').read_text()
    assert again.startswith(first)


def test_a_report_that_fails_does_not_fail_the_training(caplog):
    model = nn.ModuleDict({'loss': ISogCLRLoss(5)})
    runner = SimpleNamespace(
        model=model,
        logger=logging.getLogger('test_temperature_hook'),
        work_dir='unused',
        train_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=Clusters())),
    )
    with caplog.at_level('WARNING', 'test_temperature_hook'):
        TemperatureHook().after_train(runner)
    assert '5 temperatures, but the training set has 24' in caplog.text
