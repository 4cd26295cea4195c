"""Contract of every registered hook, inside mmengine's runner."""

import os
import shutil

import pytest
import resume_run
from mmengine.registry import DATASETS, HOOKS
from mmengine.runner import Runner
from training_ends import assert_same, contents

from mmrank.registry import HOOKS as OURS

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


def config_of(name, **settings):
    return {'type': f'mmrank.{name}', **NEEDED.get(name, {}), **settings}


def train(work_dir, names=(), epochs=4, resume=False):
    """Checkpoints of the tiny training with more hooks."""
    config = resume_run.make_config(str(work_dir), hooks=[config_of(name) for name in names])
    for loader in (config.train_dataloader, config.val_dataloader):
        loader.dataset.type = 'LabelledDataset'
    config.train_cfg.max_epochs = epochs
    config.resume = resume
    config.experiment_name = f'{work_dir}-{os.urandom(4).hex()}'
    Runner.from_cfg(config).train()
    return {path.name: contents(path) for path in sorted(work_dir.glob('epoch_*.pth'))}


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    """The checkpoints of a training without the hook."""
    return train(tmp_path_factory.mktemp('plain'))


@pytest.mark.parametrize('name', NAMES)
def test_builds_from_defaults(name):
    hook = OURS.build(config_of(name))
    assert type(hook).__name__ == name
    assert HOOKS.get(f'mmrank.{name}') is type(hook)
    assert type(hook).__doc__


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


@pytest.mark.parametrize(
    ('name', 'setting', 'value', 'message'),
    [
        ('DeferredReweightingHook', 'begin', -1, 'must be >= 0'),
        ('RankingMonitorHook', 'interval', 0, 'must be > 0'),
    ],
)
def test_bad_settings_are_named(name, setting, value, message):
    with pytest.raises(ValueError, match=f'{setting} {message}'):
        OURS.build(config_of(name, **{setting: value}))
