"""Mistakes end in one message that names the fix, and what it says works when it is typed."""

import importlib
import re
import warnings
from pathlib import Path
from unittest import mock

import adapter_models
import pytest
import torch
from labelled import Labels
from mistake_files import ROOT, write_files
from torch.utils.checkpoint import checkpoint
from user_mistakes import CALLS, COMMANDS

#: Something that can be typed, of what follows "Fix:".
CODE = re.compile(
    r"""--[a-z-]+                                      # an option
    |[\w.]+=(?:\([^()]*\)|\[[^]]*\]|dict\([^()]*\)|'[^']*'|[\w.]+)  # a setting
    |'[^']+'
    |[\w.]+\((?:[^()]|\([^()]*\))*\)(?:\.\w+|\[[^]]*\]|\((?:[^()]|\([^()]*\))*\))*  # a call
    |\b\d+(?:\.\d+)?\b
    |^[\w.]+$""",
    re.VERBOSE,
)
#: What the rows of this run have said.
messages = []
#: Messages with a "Fix:" that no row of the table raises; it may only fall.
NOT_RAISED = 294


def fix_of(message):
    """What the message says to type."""
    text = message.split('Fix: ')[1].removeprefix('one of ').split('\n')[0]
    found = CODE.search(text) or CODE.search(text.split(',')[0])
    assert found, text
    text = found[0].rstrip('.')
    return text.strip("'") if text.startswith("'") else text


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """Folder with configs, checkpoints and data, of which some are broken."""
    folder = tmp_path_factory.mktemp('mistakes')
    write_files(folder)
    return folder


@pytest.fixture
def run(files, monkeypatch, run_script):
    """Runs what is typed in the folder of the files."""
    monkeypatch.chdir(files)
    monkeypatch.syspath_prepend(files)
    monkeypatch.setenv('COLUMNS', '400')
    monkeypatch.setattr('torch.hub.get_dir', lambda: str(files / 'hub'))

    def call(typed):
        # One that holds checkpoints of another config is refused.
        for path in Path('out').glob('epoch_*.pth'):
            path.unlink()
        tool, *words = typed.split()
        if tool == 'own':
            (files / 'own.py').write_text(f"_base_ = 'det.py'\n{typed[4:]}\n")
            tool, words = 'train', ['own.py']
        elif tool == 'det':
            tool, words = 'train', ['det.py', '--cfg-options', *words]
        elif '=' in tool or not words:
            tool, words = 'train', ['mini.py', '--cfg-options', tool, *words]
        return run_script(ROOT / 'tools' / f'{tool}.py', *words)

    return call


@pytest.mark.parametrize(('typed', 'again', 'words'), [(x, y, z) for x, y, *z in COMMANDS])
def test_a_mistake_is_one_message(typed, again, words, run, files, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in files.rglob('*') if path.is_file()}
    status, output, errors = run(typed)
    assert status == 2, errors
    assert 'Traceback' not in output + errors
    message = re.split(r'^(?:\S+\.py: )?error: ', errors, flags=re.M)[-1]
    for word in words:
        assert any(x in message for x in word.split('|')), message
    assert re.search(r'Fix: |must |choose from|usage: .*\[--', errors, flags=re.S)
    # Nothing was trained; what a metric measures is known after the first epoch.
    trained = [x for x in {*files.rglob('*')} - {*before} if x.suffix == '.pth']
    assert bool(trained) == ('save_best=acc' in typed)
    # Sources, and files of others, are as before.
    for path, time in before.items():
        if files / 'out' not in path.parents and path.name != 'own.py':
            assert path.stat().st_mtime_ns == time, path
    messages.append(' '.join(message.split()))
    if not again:
        return
    monkeypatch.setattr('mmengine.runner.Runner.train', lambda self: None)
    if again == '{cleaned}':
        command = re.search(r'mmrank check coco (.*)', message)
        done = run(f'dataset_converters/check_coco {command[1]}')
        assert done[0] == 1, done  # it shows what it found
        again = f'det train_dataloader.dataset.ann_file={files}/CLEANED.json'
    status, _, errors = run(again.replace('{fix}', fix_of(message)) if '{fix}' in again else again)
    assert status == 0, errors


def names():
    """What the calls of the table use."""
    import mmrank
    from mmrank import adapters, functional, losses
    from mmrank.calibration.calibration_file import Calibration, ClassMap
    from mmrank.registry import DATA_SAMPLERS, METRICS, MODELS
    from mmrank.testing import check_loss

    g = torch.Generator().manual_seed(0)
    idx = torch.arange(8)
    matrix = torch.randn(8, 3, generator=g)
    rows = torch.randn(8, 4, generator=g)
    classes = idx % 3

    def embed(labels, loss=None, **gallery):
        return losses.EmbeddingLoss(loss or losses.APLoss())(rows, labels, **gallery)

    def call(scores, labels, fix):
        return fix(losses.APLoss(), scores, labels, scores > -9)

    def twice(loss, size):
        return [loss(rows[:size], rows[:size] + 1, idx[:size]) for _ in range(2)]

    def head(loss):
        config = dict(type='mmrank.OneVsRestHead', num_classes=3, in_channels=4)
        return MODELS.build(dict(config, loss=loss))

    def sampler(kind, labels, **settings):
        data = Labels(labels, 'abc')
        return DATA_SAMPLERS.build(dict(type=f'mmrank.{kind}', dataset=data, **settings))

    def metric(labels):
        found = METRICS.build(dict(type='mmrank.RetrievalMetric'))
        found.process({}, [dict(feature=x, gt_label=y) for x, y in zip(rows, labels)])
        return found.compute_metrics(found.results)

    def calibration():
        of_cat = ClassMap('cat', 5, 3, (0.0, 1.0), (0.0, 1.0))
        return Calibration('detection', 'precision', (of_cat,))

    def starts(*steps):
        gathered = 'mmrank.engine.hooks.checkpoint_match_hook.all_gather_object'
        return mock.patch(gathered, mock.Mock(return_value=[*steps]))

    return {
        **{name: getattr(losses, name) for name in losses.__all__},
        **{name: getattr(adapters, name) for name in adapters.__all__},
        **dict(mmrank=mmrank, torch=torch, F=functional, METRICS=METRICS, check_loss=check_loss),
        **dict(embed=embed, loss=call, twice=twice, head=head),
        **dict(nan=float('nan'), idx=idx, matrix=matrix, rows=rows, classes=classes),
        **dict(scores=matrix[:, 0], labels=idx % 2, unit=functional.unit_rows(rows)),
        'hot': torch.nn.functional.one_hot(classes),
        'levels': torch.stack([idx // 4, idx // 2], 1),
        'leaf': torch.zeros((), requires_grad=True),
        'detector': lambda kind='RetinaNet': adapter_models.build(kind),
        'in_a_group': mock.patch('mmrank.distributed.world_group', object),
        'starts': starts,
        'Mock': mock.Mock,
        'Path': Path,
        'of': lambda module, name: getattr(importlib.import_module(module), name),
        'sampler': sampler,
        'calibration': calibration,
        'metric': metric,
        'checkpoint': checkpoint,
    }


def refusal(call):
    """What a call says; nothing of it is kept."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('error', UserWarning)
            eval(call, names())
    except (UserWarning, ValueError, TypeError, RuntimeError, KeyError, ImportError) as error:
        return str(error)
    return pytest.fail(f'{call} is not refused')


@pytest.mark.parametrize(('call', 'again', 'words'), [(x, y, z) for x, y, *z in CALLS])
def test_a_call_that_is_wrong(call, again, words):
    message = refusal(call)
    assert all(x in message for x in words), message
    messages.append(' '.join(message.split()))
    if again:
        eval(again.replace('{fix}', fix_of(message)) if '{fix}' in again else again, names())


def test_warnings_are_said_again_at_the_end(run, monkeypatch):
    monkeypatch.setattr('mmengine.runner.Runner.train', lambda self: print('a long log'))
    names = "('triangle', 'square', 'disk')"
    typed = f'own train_dataloader = dict(dataset=dict(metainfo=dict(classes={names})))'
    status, output, errors = run(typed)
    assert status == 0, errors
    assert 'a long log' in output
    assert errors.startswith('warning: annotation file')
    assert 'order of classes differs' in errors


def test_every_fix_is_executed(monkeypatch):
    """Or is counted among those that are not."""
    if len(messages) < len(COMMANDS) + len(CALLS):
        pytest.skip('needs all rows of the table in this run')
    monkeypatch.syspath_prepend(ROOT / 'docs')
    from messages import all_messages

    fixes = [message for message in all_messages() if message.fix]
    missed = []
    for fix in fixes:
        parts = fix.text.split('...')
        if not any(all(part in said for part in parts) for said in messages):
            missed.append(fix)
    rows = [again for _, again, *_ in [*COMMANDS, *CALLS]]
    print(f'{len(fixes)} messages with a fix, {len(missed)} not raised; {rows.count("")} general')
    assert len(missed) <= NOT_RAISED, missed
