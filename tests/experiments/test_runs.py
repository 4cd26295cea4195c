"""Runs side by side: resuming, failing, dying, interrupting."""

import io
import json
import os
import time

import pytest
from fake_training import plan_of_one, write_training
from rich.console import Console

from mmrank.cli.train_and_test import _read_curve
from mmrank.errors import UserError
from mmrank.experiments.runs import (
    SCRIPT,
    _parse_progress,
    _read_result,
    build_command,
    count_cores,
    work_off,
)


@pytest.fixture
def make_work(tmp_path, monkeypatch):
    """Make a function that works runs off, and these runs, for a fake training."""
    monkeypatch.setattr('mmrank.experiments.runs.POLL_SECONDS', 0.02)
    console = Console(file=io.StringIO(), width=200)

    def make(seeds=(0,), jobs=1, script=None, **options):
        path = write_training(tmp_path)
        if script:
            path.write_text(script)
        monkeypatch.setattr('mmrank.experiments.runs.SCRIPT', (str(path),))
        plan = plan_of_one(tmp_path, seeds, **options)
        runs = plan.runs()

        def work() -> tuple[list, str]:
            return work_off(console, runs, plan.metrics, jobs=jobs), console.file.getvalue()

        return work, runs

    return make


def test_command(tmp_path):
    (run,) = plan_of_one(tmp_path, [5], lr='1e-4').runs()
    assert build_command(run) == [
        *(*SCRIPT, run.config, '--work-dir', str(run.folder)),
        *('--split', 'test', '--cfg-options', 'randomness.seed=5', 'lr=1e-4'),
    ]


@pytest.mark.parametrize('chosen', [None, '3'])
def test_cores_are_shared_out(make_work, monkeypatch, chosen):
    for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS'):
        monkeypatch.delenv(name, raising=False)
    if chosen:
        monkeypatch.setenv('OMP_NUM_THREADS', chosen)
    work, runs = make_work(seeds=range(3), jobs=2)
    work()
    found = [json.loads(r.result_file.read_text())['metrics'] for r in runs]
    threads = chosen or str(max(1, count_cores() // 2))
    assert {metrics['threads'] for metrics in found} == {threads}


def test_a_run_that_dies_is_finished_and_one_that_fails_reported(make_work):
    work, runs = make_work(seeds=range(3), jobs=2, die=0, fail=1)
    (good, bad, other), said = work()
    assert good.metrics['number'] == 0
    assert other.metrics['number'] == 2
    assert bad.metrics is None
    assert 'exit status 1 (started 2 times)' in bad.error
    assert 'something broke' in bad.error
    for seed, fault in enumerate(('killed by signal 9', 'exit status 1')):
        assert f'seed {seed} died ({fault}); it is started once more' in said
    assert [int((run.folder / 'count').read_text()) for run in runs] == [2, 2, 1]
    log = (runs[0].folder / 'output.log').read_text()
    assert log.index('start 1 of') < log.index('start 2 of')
    # The next call finds what is finished, and tries the other one again.
    again, _ = work()
    assert [x.seconds == 0 for x in again] == [True, False, True]


def test_a_result_counts_however_its_command_ended(make_work):
    script = (
        'import pathlib, sys\n'
        'pathlib.Path(sys.argv[3], "result.json").write_text(\'{"metrics": {"number": 1}}\')\n'
        'sys.exit(7)\n'
    )
    work, _ = make_work(script=script)
    (outcome,), _ = work()
    assert (outcome.metrics, outcome.error) == ({'number': 1.0}, '')


def test_an_interrupt_ends_the_commands(make_work, monkeypatch):
    script = (
        'import os, pathlib, sys, time\n'
        "pathlib.Path(sys.argv[3], 'pid').write_text(str(os.getpid()))\n"
        'time.sleep(60)\n'
    )
    work, (run,) = make_work(script=script)
    pid = run.folder / 'pid'

    def interrupt(log):
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt
        return '', None

    monkeypatch.setattr('mmrank.experiments.runs._parse_progress', interrupt)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - start < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


DAMAGED = ('{"metr', '', '{}', '[1]', '\udcff', '[' * 100_000, '{"metrics": [0.5]}')


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('{"metrics": {"coco/bbox_mAP": 0.4}}', r'has no metric acc.*coco/bbox_mAP'),
        *((x, 'is damaged. Fix: remove it') for x in DAMAGED),
        ('{"metrics": {"acc": "0.5"}}', "acc is '0.5'. Fix: "),
        ('{"metrics": {"acc": NaN, "other": Infinity}}', 'acc is nan. Fix: '),
        (f'{{"metrics": {{"acc": {"9" * 400}}}}}', 'acc is 9999.*Fix: '),
    ],
)
def test_a_damaged_result_is_named(make_work, text, message):
    work, (run,) = make_work(metric='acc')
    run.folder.mkdir(parents=True)
    run.result_file.write_text(text, errors='surrogateescape')
    with pytest.raises(UserError, match=message):
        _read_result(run, ['acc'])
    (outcome,), _ = work()
    assert outcome.metrics is None
    assert 'Fix: ' in outcome.error


def test_figures_that_are_not_asked_for_may_be_anything(make_work):
    _, (run,) = make_work()
    run.folder.mkdir(parents=True)
    run.result_file.write_text('{"metrics": {"acc": NaN, "loss": 1, "name": "x"}}')
    assert _read_result(run, ['loss']) == {'loss': 1.0}


def test_progress_is_read_from_the_log():
    assert _parse_progress('loading') == ('starting', None)
    log = (
        'mmengine - INFO - Epoch(train)   [3][ 10/52]  lr: 1.0e-04  eta: 0:04:10  time: 0.5\n'
        'mmengine - INFO - Epoch(train)   [3][ 20/52]  lr: 1.0e-04  eta: 1 day, 0:03:58  time: 1\n'
    )
    assert _parse_progress(log) == ('epoch 3 iteration 20/52', 86400 + 238)
    log = 'Iter(train) [ 100/2000]  lr: 1.0e-04  eta: 0:10:00  loss: 1'
    assert _parse_progress(log) == ('iteration 100/2000', 600)


def test_a_log_that_is_a_link_is_refused(make_work, tmp_path):
    work, (run,) = make_work()
    run.folder.mkdir(parents=True)
    (tmp_path / 'precious').write_text('mine')
    (run.folder / 'output.log').symlink_to(tmp_path / 'precious')
    with pytest.raises(UserError, match=r'output\.log cannot be written: it is a link, '):
        work()
    assert (tmp_path / 'precious').read_text() == 'mine'


def test_a_torn_line_of_a_killed_training_is_left_out(tmp_path):
    file = tmp_path / '20260101_000000' / 'vis_data' / 'scalars.json'
    file.parent.mkdir(parents=True)
    file.write_text('{"acc": 0.51234567, "step": 1}\n{"acc": 0.6, "step": 2}\n{"acc": 0.7, "st')
    assert _read_curve(tmp_path, ['acc'], 10) == [[10, {'acc': 0.5123}], [20, {'acc': 0.6}]]
