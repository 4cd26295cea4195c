"""Checkpoints of another model or training are refused with a table."""

import copy
import re
from types import SimpleNamespace

import pytest
import torch
from gloo_processes import run_on_ranks
from resume_run import runner_of
from torch import nn

from mmrank.checkpoint_loading import CheckpointError, load_checkpoint
from mmrank.engine.hooks import CheckpointMatchHook
from mmrank.engine.resume.matching import (
    changed_settings,
    classes_in_other_order,
    compare_states,
    differences_table,
)
from mmrank.state import SampleLogMean


def run_with(checkpoint, tmp_path, resume=True, strict=True, allow=(), **options):
    """Train one epoch more, from a checkpoint given as a dict."""
    torch.save(checkpoint, tmp_path / 'epoch_3.pth')

    def change(config):
        config.load_from = str(tmp_path / 'epoch_3.pth')
        config.train_cfg.max_epochs = 4 if resume else 1

    runner = runner_of(tmp_path / 'work', resume, change, **options)
    runner.register_hook(CheckpointMatchHook(strict, allow))
    runner.train()
    return runner, '\n'.join(runner.warned)


@pytest.fixture
def content(trained):
    """The checkpoint of the third epoch, to change."""
    return copy.deepcopy(load_checkpoint(trained[0] / 'epoch_3.pth'))


def test_named_keys_may_differ(trained, content, tmp_path, run):
    torch.save({'state_dict': {}}, tmp_path / 'empty.pth')
    place = ['--work-dir', tmp_path]
    said = run('test', trained[1], tmp_path / 'empty.pth', *place, status=2)
    assert 'distance' not in said
    assert re.search(r'missing +net.0.weight', said)
    assert "--allow-partial 'net.0.weight'" in said
    del content['state_dict']['net.4.bias']
    torch.save(content, tmp_path / 'other.pth')
    allow = '--allow-partial net.{}.*'
    for words, status in (('', 2), (allow.format(0), 2), (allow.format(4), 0)):
        run('test', trained[1], tmp_path / 'other.pth', *place, words, status=status)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda c: c.pop('optimizer'), 'missing +optimizer'),
        (lambda c: c.pop('ema_state_dict'), 'missing +ema_state_dict'),
        (lambda c: c.pop('message_hub'), 'cannot be resumed: it has no mess'),
        (lambda c: c['meta'].pop('iter'), 'it has no iter'),
        (lambda c: c['param_schedulers'].pop(), 'mismatched +param_sched'),
        (lambda c: c['state_dict'].update(other=torch.ones(2)), r'unexpected +other +\(2,\)'),
        (lambda c: c['optimizer']['param_groups'].append({}), '2 parameter groups'),
        (lambda c: c['optimizer']['param_groups'][0].pop('momentum'), 'without momentum'),
        (
            lambda c: c['state_dict'].update({'net.4.bias': torch.ones(7)}),
            r'mismatched +net.4.bias +\(7,\) +\(1,\)',
        ),
    ],
)
def test_what_a_resume_needs(content, tmp_path, change, message):
    change(content)
    with pytest.raises(CheckpointError, match=message):
        run_with(content, tmp_path)


def test_a_resume_of_this_run_and_with_other_settings(content, tmp_path):
    runner, warnings = run_with(content, tmp_path)
    assert (runner.epoch, warnings) == (4, '')
    content['meta']['cfg'] = 'model = dict(type="Other")'
    adam = {'type': 'AdamW', 'lr': 0.05}
    message = 'mismatched +optimizer +an optimizer without amsgrad, betas.* AdamW'
    with pytest.raises(CheckpointError, match=message):
        run_with(content, tmp_path, optimizer=adam)
    # One that is allowed starts fresh.
    runner, warnings = run_with(content, tmp_path, allow=['optimizer'], optimizer=adam)
    assert 'resumed with other settings' in warnings
    assert re.search(message, warnings)
    assert runner.epoch == 4


@pytest.mark.parametrize(
    ('old', 'new', 'said'),
    [
        ('lr=0.05', 'lr=0.5', 'optim_wrapper.optimizer.lr=0.05, in the checkpoint 0.5'),
        ("type='a'", "type='b'", "model.head.loss.type='a', in the checkpoint 'b'"),
        ('batch_size=2', 'batch_size=4', 'batch_size=2, in the checkpoint 4'),
        ("classes=('a',)", "classes=('a', 'b')", "classes.1=absent, in the checkpoint 'b'"),
        ('max_epochs=3', 'max_epochs=2', ''),
        ("work_dir='a'", "work_dir='b'", ''),
        ("work_dir='a'", '((', ''),
    ],
)
def test_a_resume_lists_the_settings_of_the_training_that_changed(old, new, said):
    text = (
        "model = dict(head=dict(loss=dict(type='a')))\nwork_dir='a'\n"
        "train_dataloader = dict(batch_size=2, dataset=dict(metainfo=dict(classes=('a',))))\n"
        'optim_wrapper = dict(optimizer=dict(lr=0.05))\ntrain_cfg = dict(max_epochs=3)\n'
    )
    found = changed_settings(text.replace(old, new), text)
    assert found.strip().endswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ('saved', 'names', 'is_refused'),
    [
        (('a', 'b'), ('b', 'a'), True),
        (['a', 'b', 'c'], ('a', 'c', 'b'), True),
        (['a', 'b'], ('a', 'b'), False),
        (('a', 'b'), ('c', 'd'), False),
        (None, ('a', 'b'), False),
        (('a', 'b'), None, False),
    ],
)
def test_classes_in_another_order_are_refused(saved, names, is_refused):
    dataset = SimpleNamespace(metainfo=dict(classes=names))
    found = classes_in_other_order(dict(meta=dict(dataset_meta=dict(classes=saved))), dataset)
    assert bool(found) == ('Fix: ' in found) == is_refused


@pytest.mark.parametrize('bare', [False, True])
def test_fine_tuning_stays_lenient_with_a_table(bare, content, tmp_path):
    state = content['state_dict']
    state['net.4.bias'] = torch.ones(7)
    del state['net.4.weight']
    weight = state['net.0.weight'].clone()
    runner, warnings = run_with(state if bare else content, tmp_path, resume=False, strict=False)
    assert re.search('mismatched +net.4.bias', warnings)
    assert re.search('missing +net.4.weight', warnings)
    moved = runner.model.net[0].weight - weight
    assert 0 < moved.abs().max() < 0.5


@pytest.mark.parametrize('other', [{'net.1.running_mean': torch.ones(8)}, {'model': {}}, {}])
def test_nothing_is_tuned_from_weights_that_are_all_of_another_model(other, tmp_path):
    with pytest.raises(CheckpointError, match='has no weight of this model'):
        run_with(other, tmp_path, resume=False, strict=False)


def test_optional_state_is_not_compared_and_a_long_table_is_cut():
    state = {f'{i}': torch.ones(1) for i in range(100)}
    text = differences_table(compare_states(nn.Linear(2, 2), state))
    assert len(text.splitlines()) == 33
    assert text.endswith('and 72 unexpected')
    model = nn.ModuleDict({'u': SampleLogMean(5, load_state=False)})
    saved = nn.ModuleDict({'u': SampleLogMean(9)}).state_dict()
    assert compare_states(model, saved) == []
    assert len(compare_states(nn.ModuleDict({'u': SampleLogMean(5)}), saved))


def _start_at(rank, epochs, message):
    """Start a process at an epoch that all have, and at its own."""
    hook = CheckpointMatchHook()
    hook.before_train(SimpleNamespace(epoch=2, iter=6))
    with pytest.raises(CheckpointError, match=message):
        hook.before_train(SimpleNamespace(epoch=epochs[rank], iter=3 * epochs[rank]))
    return []


@pytest.mark.processes
def test_all_processes_start_at_one_step():
    """As machines without a common disk do not."""
    message = r'the processes start at the iterations \[6, 0\]'
    run_on_ranks(_start_at, 2, (2, 0), message)
