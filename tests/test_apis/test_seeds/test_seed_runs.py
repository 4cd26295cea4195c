"""Runs side by side: resuming, failing, interrupting."""

import json
import os
import sys
import time
from functools import partial

import pytest
from fake_training import plan_of_one, write_training

from mmrank.apis.seeds.executors import LocalExecutor, count_cores
from mmrank.apis.seeds.runs import SCRIPT, RunQueue, build_command, parse_progress, read_result


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Runs are of a script that behaves like a training."""
    monkeypatch.setattr('mmrank.apis.seeds.runs.SCRIPT', (str(write_training(tmp_path)),))


@pytest.fixture
def make_plan(tmp_path):
    """Make a plan of one method with the given options."""
    return partial(plan_of_one, tmp_path)


def quick(**options):
    """This machine, looked at often."""
    executor = LocalExecutor(**options)
    executor.poll_seconds = 0.02
    return executor


def test_command(make_plan):
    (run,) = make_plan(seeds=[5], lr='1e-4').final_runs()
    assert build_command(run) == [
        *(sys.executable, *SCRIPT, run.config, '--work-dir', str(run.folder)),
        *('--split', 'test', '--cfg-options', 'randomness.seed=5', 'lr=1e-4'),
    ]


@pytest.mark.parametrize('chosen', [None, '3'])
@pytest.mark.usefixtures('fake')
def test_cores_are_shared_out(make_plan, monkeypatch, chosen):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    if chosen:
        monkeypatch.setenv('OMP_NUM_THREADS', chosen)
    plan = make_plan()
    runs = plan.final_runs()
    RunQueue(plan, quick(jobs=2)).run(runs)
    found = [json.loads(r.result_file.read_text())['metrics'] for r in runs]
    threads = chosen or str(max(1, count_cores() // 2))
    assert {metrics['threads'] for metrics in found} == {threads}


def test_an_interrupt_ends_the_commands(make_plan, tmp_path, monkeypatch):
    script = tmp_path / 'hang.py'
    script.write_text(
        'import os, pathlib, sys, time\n'
        "pathlib.Path(sys.argv[3], 'pid').write_text(str(os.getpid()))\n"
        'time.sleep(60)\n'
    )
    plan = make_plan(seeds=[0])
    (run,) = plan.final_runs()

    def interrupt(_, text):
        if (run.folder / 'pid').exists():
            raise KeyboardInterrupt

    monkeypatch.setattr('mmrank.apis.seeds.runs.SCRIPT', (str(script),))
    queue = RunQueue(plan, quick())
    queue.on_progress = interrupt
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        queue.run([run])
    assert time.monotonic() - start < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((run.folder / 'pid').read_text()), 0)


def test_missing_metric_names_those_that_are_there(make_plan):
    (run,) = make_plan(seeds=[0]).final_runs()
    assert read_result(run) is None
    run.folder.mkdir(parents=True)
    run.result_file.write_text('{"metrics": {"coco/bbox_mAP": 0.4}}')
    with pytest.raises(ValueError, match='coco/bbox_mAP'):
        read_result(run, ['acc'])
    run.result_file.write_text('{"metr')
    with pytest.raises(ValueError, match='delete it'):
        read_result(run, ['acc'])
    run.result_file.write_text('{"metrics": {"acc": NaN, "loss": 1, "other": Infinity}}')
    with pytest.raises(ValueError, match='acc is nan. Fix: '):
        read_result(run, ['acc'])
    assert read_result(run, ['loss']) == {'loss': 1.0}


def test_progress_is_read_from_the_log():
    assert parse_progress('loading') == 'starting'
    log = (
        'mmengine - INFO - Epoch(train)   [3][ 10/52]  lr: 1.0e-04  eta: 0:04:10  time: 0.5\n'
        'mmengine - INFO - Epoch(train)   [3][ 20/52]  lr: 1.0e-04  eta: 1 day, 0:03:58  time: '
        '0.5\n'
    )
    expected = 'epoch 3 iteration 20/52 eta 1 day, 0:03:58'
    assert parse_progress(log) == expected
    log = 'Iter(train) [ 100/2000]  lr: 1.0e-04  eta: 0:10:00  loss: 1'
    assert parse_progress(log) == 'iteration 100/2000 eta 0:10:00'


def test_a_log_that_is_a_link_is_refused(make_plan, tmp_path):
    plan = make_plan(seeds=[0])
    (run,) = plan.final_runs()
    run.folder.mkdir(parents=True)
    (tmp_path / 'precious').write_text('mine')
    (run.folder / 'output.log').symlink_to(tmp_path / 'precious')
    with pytest.raises(ValueError, match=r'output\.log is a link'):
        RunQueue(plan, quick()).run([run])
    assert (tmp_path / 'precious').read_text() == 'mine'


def test_a_torn_line_of_a_killed_training_is_left_out(tmp_path):
    from mmrank.apis.seeds.train_and_test import read_curve

    file = tmp_path / '20260101_000000' / 'vis_data' / 'scalars.json'
    file.parent.mkdir(parents=True)
    file.write_text('{"acc": 0.5, "step": 1}\n{"acc": 0.6, "step": 2}\n{"acc": 0.7, "st')
    assert read_curve(tmp_path, ['acc'], 10) == [[10, {'acc': 0.5}], [20, {'acc': 0.6}]]
