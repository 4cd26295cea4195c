"""The temperatures tool on checkpoints and a config made here."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from cifar_trees import CIFAR10_NAMES, write_arrays

pytest.importorskip('mmpretrain')

TOOL = 'analysis_tools/temperatures'
CONFIG = """
default_scope = 'mmpretrain'
train_dataloader = dict(
    dataset=dict(type='mmrank.CIFAR10LT', data_root={root!r},
                 imbalance_ratio=5))
"""


@pytest.fixture
def config(tmp_path):
    """A config of CIFAR-10-LT with 10 images of the first class."""
    write_arrays(tmp_path, dict(train=10))
    path = tmp_path / 'config.py'
    path.write_text(CONFIG.format(root=str(tmp_path)))
    return path


def write_checkpoint(path, tau, visited=True):
    log_s = torch.zeros(len(tau)) if visited else torch.full(tau.shape, -np.inf)
    state = {'loss.temperature.tau': tau, 'loss.temperature.log_s': log_s}
    torch.save({'state_dict': state}, path)
    return path


def sizes():
    return [int(10 * 5 ** (-c / 9) + 1e-6) for c in range(10)]


def test_tables_and_pictures(tmp_path, config, run_script):
    labels = torch.arange(10).repeat_interleave(torch.tensor(sizes()))
    noise = torch.linspace(0, 0.01, len(labels))
    checkpoints = [
        write_checkpoint(tmp_path / f'epoch_{i}.pth', i * (1 - labels / 20) + noise)
        for i in (9, 10)
    ]
    out = tmp_path / 'out'
    path = Path(__file__).parents[2] / 'tools' / f'{TOOL}.py'
    status, text, errors = run_script(path, config, *checkpoints, '--out-dir', out)
    assert (status, errors) == (0, '')
    assert f'{len(labels)} of {len(labels)} samples visited' in text
    # The labels of the subset stand in the order of the images.
    assert 'Spearman +0.9' in text
    names = ('history.csv', 'history.png', 'samples.csv', 'classes.csv', 'sheet.png')
    assert {p.name for p in out.iterdir()} == {x.replace('.', '_temperature.') for x in names}
    with (out / 'history_temperature.csv').open() as file:
        assert [r['step'] for r in csv.DictReader(file)] == ['9', '10']
    with (out / 'classes_temperature.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert [r['class'] for r in rows] == list(CIFAR10_NAMES)
    assert [int(r['samples']) for r in rows] == sizes()


def test_wrong_input_is_named(tmp_path, config, run):
    total = sum(sizes())
    good = write_checkpoint(tmp_path / 'epoch_1.pth', torch.rand(total))
    short = write_checkpoint(tmp_path / 'epoch_2.pth', torch.rand(total - 1))
    fresh = write_checkpoint(tmp_path / 'new.pth', torch.rand(total), False)
    for arguments, message in (
        ((config, short), f'{total - 1} temperatures, but the training set'),
        ((config, fresh), 'no sample was visited yet'),
        ((config, tmp_path / 'none.pth'), 'none.pth does not exist'),
        ((tmp_path / 'none.py', good), 'none.py'),
    ):
        assert message in run(TOOL, *arguments, '--out-dir', tmp_path / 'out', status=2)
    run(TOOL, config, good, '--images', -1, status=2)
