"""Torn checkpoints are recognised and passed over; test_hostile_checkpoints.py damages more."""

import os
import random
import subprocess
import time
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from resume_run import Distance, runner_of
from training_ends import contents

from mmrank import files
from mmrank.engine.hooks import AtomicCheckpointHook, rng_state_hook
from mmrank.engine.hooks.rng_state_hook import RNG_KEY
from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint
from mmrank.engine.resume.rng_state import get_rng_state, set_rng_state
from mmrank.files import remove_temporary_files, write_atomically


def save(path):
    """Write a checkpoint large enough to be torn in several places."""
    torch.save({'meta': {'epoch': 1}, 'state_dict': {'w': torch.randn(2000)}}, path)
    return path


KINDS = {'epoch_1.pth': 0, 'iter_900.pth': 0, 'iter_1000.pth': 0}


@pytest.mark.parametrize(
    ('ages', 'pointer', 'torn', 'found'),
    [
        # Written after its pointer, and left by an older training.
        ({'epoch_1.pth': 10, 'epoch_2.pth': 0}, 'epoch_1.pth', (), 'epoch_2.pth'),
        ({'epoch_12.pth': 1000, 'epoch_3.pth': 0}, 'epoch_3.pth', (), 'epoch_3.pth'),
        ({'best_acc_epoch_9.pth': 0, '.epoch_9.pth.123.tmp': 0}, None, (), None),
        # Names of another kind come last.
        (KINDS, 'iter_1000.pth', ('iter_1000.pth',), 'iter_900.pth'),
        (KINDS, 'iter_1000.pth', ('iter_1000.pth', 'iter_900.pth'), 'epoch_1.pth'),
    ],
)
def test_the_last_whole_checkpoint_of_this_training(tmp_path, ages, pointer, torn, found):
    """By the age of the files in seconds, and the file that mmengine's pointer names."""
    now = time.time()
    for name, age in ages.items():
        save(tmp_path / name)
        os.utime(tmp_path / name, (now - age, now - age))
    if pointer is not None:
        path = tmp_path / 'last_checkpoint'
        path.write_text(str(tmp_path / pointer))
        os.utime(path, (now - ages[pointer], now - ages[pointer]))
    for name in torn:
        os.truncate(tmp_path / name, 100)
    assert find_last_whole_checkpoint(tmp_path) == (found and str(tmp_path / found))
    assert find_last_whole_checkpoint(tmp_path / 'absent') is None


def test_pointer_into_another_folder_and_moved_folder(tmp_path):
    work_dir = tmp_path / 'work'
    other = tmp_path / 'other'
    for place in (work_dir, other):
        place.mkdir()
    save(other / 'epoch_4.pth')
    (work_dir / 'last_checkpoint').write_text(str(other / 'epoch_4.pth'))
    assert find_last_whole_checkpoint(work_dir) == str(other / 'epoch_4.pth')
    save(work_dir / 'epoch_4.pth')
    (work_dir / 'last_checkpoint').write_text(str(tmp_path / 'gone' / 'epoch_4.pth'))
    assert find_last_whole_checkpoint(work_dir) == str(work_dir / 'epoch_4.pth')


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / 'file'
    write_atomically(b'old', path)

    def fail(descriptor):
        raise OSError('No space left on device')

    monkeypatch.setattr(os, 'fsync', fail)
    with pytest.raises(OSError, match='No space left'):
        write_atomically(b'new', path)
    assert path.read_bytes() == b'old'
    assert [item.name for item in tmp_path.iterdir()] == ['file']


def test_only_own_temporary_files_are_removed(tmp_path):
    with subprocess.Popen(['true']) as dead:
        pass
    host = files._host()
    kept = [
        f'.epoch_1.pth.{os.getppid()}@{host}.tmp',  # its writer lives
        f'.epoch_2.pth.{dead.pid}@away-1.tmp',  # it may
        '.notes.tmp',
        'data.tmp',
    ]
    for name in (f'.epoch_1.pth.{dead.pid}@{host}.tmp', *kept):
        (tmp_path / name).touch()
    remove_temporary_files(tmp_path)
    assert {item.name for item in tmp_path.iterdir()} == set(kept)


KEEP_TWO = {
    'max_keep_ckpts': 2,
    'save_best': 'distance',
    'rule': 'less',
    'published_keys': ['meta', 'state_dict'],
}


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """The folder of a finished training of four epochs."""
    work_dir = tmp_path_factory.mktemp('trained')
    runner_of(work_dir, checkpoint=KEEP_TWO).train()
    return work_dir


def test_drop_in_options(trained):
    names = {item.name for item in trained.glob('*.pth')}
    assert {'epoch_3.pth', 'epoch_4.pth'} <= names
    assert not {'epoch_1.pth', 'epoch_2.pth'} & names
    best = [name for name in names if name.startswith('best_distance')]
    published = [name for name in names if '-' in name]
    assert len(best) == 2  # and its published copy
    assert len(published) == 2
    (last,) = (name for name in published if name.startswith('epoch_4-'))
    assert set(torch.load(trained / last)) == {'meta', 'state_dict'}
    assert not [item for item in trained.iterdir() if item.name[0] == '.']
    pointer = (trained / 'last_checkpoint').read_text()
    assert pointer == str(trained / 'epoch_4.pth')


class Killed(BaseException):
    """Ends a training where a kill would."""


@contextmanager
def killed_at(owner, name, count):
    """Let the ``count``-th call of a method end a training as a kill does."""
    method, calls = getattr(owner, name), []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == count:
            raise Killed
        return method(*args, **kwargs)

    with mock.patch.object(owner, name, call), pytest.raises(Killed):
        yield


def test_missed_validation_gets_into_the_checkpoint(tmp_path):
    options = {'save_best': 'distance', 'rule': 'less'}
    with killed_at(Distance, 'compute_metrics', 2):
        runner_of(tmp_path, checkpoint=options).train()
    runner_of(tmp_path, resume=True, checkpoint=options).train()
    (best,) = tmp_path.glob('best_distance_epoch_*')
    assert best.stem.endswith('2')
    infos = contents(tmp_path / 'epoch_2.pth')['infos']
    assert infos['mmrank_validated_at'] == 2


def test_a_checkpoint_that_a_kill_kept_goes_when_the_run_resumes(tmp_path):
    with killed_at(AtomicCheckpointHook, '_remove_outdated', 3):
        runner_of(tmp_path, checkpoint={'max_keep_ckpts': 1}).train()
    assert {x.name for x in tmp_path.glob('*.pth')} == {'epoch_1.pth', 'epoch_2.pth'}
    runner_of(tmp_path, resume=True, checkpoint={'max_keep_ckpts': 1}).train()
    assert [x.name for x in tmp_path.glob('*.pth')] == ['epoch_4.pth']


def test_a_validation_without_a_training_keeps_no_best(tmp_path):
    runner = runner_of(tmp_path, checkpoint={'save_best': 'distance', 'rule': 'less'})
    assert 'distance' in runner.val()
    assert not [*tmp_path.glob('best_*')]


def test_boxes_of_the_best_checkpoint_stay_with_it(tmp_path):
    boxes = tmp_path / 'val.bbox.json'

    class CocoMetric(Distance):
        outfile_prefix = str(tmp_path / 'val')
        distances = iter((0.3, 0.2, 0.4, 0.5))

        def compute_metrics(self, results) -> dict:
            found = next(self.distances)
            boxes.write_text(f'{found}')
            return {'distance': found}

    runner = runner_of(tmp_path, checkpoint={'save_best': 'distance', 'rule': 'less'})
    runner.val_evaluator.metrics[0].__class__ = CocoMetric
    runner.train()
    (kept,) = tmp_path.glob('best_*.bbox.json')
    assert (kept.name, kept.read_text()) == ('best_distance_epoch_2.bbox.json', '0.2')
    assert boxes.read_text() == '0.5'


def test_full_disk_leaves_the_best_before(tmp_path, monkeypatch):
    save = Runner.save_checkpoint

    def fill(runner, out_dir, filename, *args, **kwargs):
        if filename.startswith('best') and any(tmp_path.glob('best_*')):
            raise OSError(28, 'No space left on device')
        return save(runner, out_dir, filename, *args, **kwargs)

    monkeypatch.setattr(Runner, 'save_checkpoint', fill)
    with pytest.raises(OSError, match='No space'):
        runner_of(tmp_path, checkpoint=KEEP_TWO).train()
    assert len(list(tmp_path.glob('best_*'))) == 1


def test_workers_of_each_process_keep_their_seed(trained, monkeypatch):
    hook = rng_state_hook.RNGStateHook()
    checkpoint = torch.load(trained / 'epoch_3.pth', weights_only=False)
    (state,) = checkpoint[RNG_KEY]['processes']
    checkpoint[RNG_KEY]['processes'] = [{**state, 'worker_seed': seed} for seed in (7, 8)]
    monkeypatch.setattr(rng_state_hook, 'get_world_size', lambda: 2)
    monkeypatch.setattr(rng_state_hook, 'get_rank', lambda: 1)
    runner = runner_of(trained / 'second', workers=1)
    hook.after_load_checkpoint(runner, checkpoint)
    hook._restore(runner)
    loader = runner.train_loop.dataloader
    assert loader.worker_init_fn.keywords['seed'] == 8


def test_state_loads_as_weights_only_with_the_spare_gaussians(tmp_path):
    random.gauss(0, 1)
    np.random.randn()
    torch.save(get_rng_state(), tmp_path / 'state.pt')
    expected = random.gauss(0, 1), np.random.randn(), float(torch.rand(()))
    set_rng_state(torch.load(tmp_path / 'state.pt', weights_only=True))
    assert (random.gauss(0, 1), np.random.randn(), float(torch.rand(()))) == expected


def test_mmengine_resumes_from_the_last_whole(tmp_path):
    runner_of(tmp_path).train()
    os.truncate(tmp_path / 'epoch_4.pth', 1000)
    runner = runner_of(tmp_path, resume=True)
    for hook in runner.hooks:
        if isinstance(hook, AtomicCheckpointHook):
            hook.before_run(runner)
    assert (tmp_path / 'last_checkpoint').read_text() == str(tmp_path / 'epoch_3.pth')
    runner.train()
    assert runner.epoch == 4
    assert (tmp_path / 'last_checkpoint').read_text().endswith('epoch_4.pth')


def test_nothing_whole_starts_over(tmp_path):
    (tmp_path / 'epoch_1.pth').write_bytes(b'torn')
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'epoch_1.pth'))
    runner = runner_of(tmp_path, resume=True)
    runner.train()
    assert any('starts from the beginning' in item for item in runner.warned)
    assert runner.epoch == 4


def test_resume_without_a_seed_keeps_the_order_of_the_data(tmp_path):
    runner = runner_of(tmp_path, seed=None)
    runner.train()
    seed = runner.train_dataloader.sampler.seed
    os.remove(tmp_path / 'epoch_4.pth')
    resumed = runner_of(tmp_path, resume=True, seed=None)
    resumed.train()
    assert resumed.train_dataloader.sampler.seed == seed


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda state: None, 'has no "mmrank_rng_state"'),
        (
            lambda state: {**state, 'processes': state['processes'] * 2},
            'states of 2 processes, this run has 1',
        ),
    ],
    ids=['absent', 'world-size'],
)
def test_unusable_state_is_reported(trained, tmp_path, change, message):
    checkpoint = torch.load(trained / 'epoch_3.pth', weights_only=False)
    checkpoint[RNG_KEY] = change(checkpoint[RNG_KEY])
    torch.save(checkpoint, tmp_path / 'epoch_3.pth')
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'epoch_3.pth'))
    runner = runner_of(tmp_path, resume=True)
    runner.train()
    assert any(message in item for item in runner.warned)


def test_workers_that_outlive_an_epoch_are_reported(tmp_path):
    def change(config):
        config.train_dataloader.persistent_workers = True
        config.train_cfg.max_epochs = 1

    runner = runner_of(tmp_path, change=change, workers=1)
    runner.train()
    (message,) = (item for item in runner.warned if 'workers' in item)
    assert 'train_dataloader.persistent_workers=False' in message


@pytest.mark.parametrize(
    ('options', 'atomic'),
    [
        # Spelled out, and the client of old versions.
        ({'backend_args': {'backend': 'local'}}, True),
        ({'file_client_args': {'backend': 'disk'}}, False),
    ],
)
def test_choice_of_the_backend(tmp_path, options, atomic):
    runner = runner_of(tmp_path, checkpoint=options)
    runner.train()
    (hook,) = (h for h in runner.hooks if isinstance(h, AtomicCheckpointHook))
    assert hook._atomic is atomic
    assert (tmp_path / 'last_checkpoint').read_text().endswith('epoch_4.pth')
