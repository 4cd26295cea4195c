"""Slurm, as submitit tries it here, and runs that die."""

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_training import plan_of_one, write_training

from mmrank.apis.seeds.arguments import make_executor, make_parser
from mmrank.apis.seeds.executors import LocalExecutor, SlurmExecutor
from mmrank.apis.seeds.plan import parse_plan
from mmrank.apis.seeds.runs import RunQueue
from mmrank.errors import UserError
from mmrank.imports import VERSIONS


@pytest.fixture
def make_queue(tmp_path, monkeypatch):
    """Make a queue and its runs, with what the fake training is to do."""
    monkeypatch.setattr('mmrank.apis.seeds.runs.SCRIPT', (str(write_training(tmp_path)),))

    def make(executor, seeds=(0, 1, 2), **options):
        executor.poll_seconds = 0.05
        executor.file_seconds = 0.5
        plan = plan_of_one(tmp_path, seeds, **options)
        deaths = []
        queue = RunQueue(plan, executor)
        queue.on_again = lambda run, fault: deaths.append((run.seed, fault))
        return queue, plan.final_runs(), deaths

    return make


def check_deaths(make_queue, executor):
    """A run that dies once is finished, one that always fails reported."""
    queue, runs, deaths = make_queue(executor, die=0, fail=1)
    good, bad, other = queue.run(runs)
    assert good.metrics['number'] == 0
    assert other.metrics['number'] == 2
    assert bad.metrics is None
    assert 'exit status 1 (started 2 times)' in bad.error
    assert 'something broke' in bad.error
    assert dict(deaths) == {0: 'killed by signal 9', 1: 'exit status 1'}
    counts = [int((run.folder / 'count').read_text()) for run in runs]
    assert counts == [2, 2, 1]
    log = (runs[0].folder / 'output.log').read_text()
    assert log.index('start 1 of') < log.index('start 2 of')
    # The next call finds what is finished, and tries the other one again.
    again = queue.run(runs)
    assert [x.seconds == 0 for x in again] == [True, False, True]


def test_a_run_that_dies_is_retried_here(make_queue):
    check_deaths(make_queue, LocalExecutor(jobs=2))


def test_what_cannot_be_started_is_reported(make_queue, monkeypatch):
    queue, runs, _deaths = make_queue(LocalExecutor(), seeds=[0])
    monkeypatch.setattr(sys, 'executable', '/nowhere/python')
    (outcome,) = queue.run(runs)
    assert 'No such file' in outcome.error
    assert '(started 2 times)' in outcome.error


def test_a_result_counts_however_its_command_ended(make_queue, tmp_path, monkeypatch):
    queue, runs, deaths = make_queue(LocalExecutor(), seeds=[0])
    script = tmp_path / 'late.py'
    script.write_text(
        'import pathlib, sys\n'
        'pathlib.Path(sys.argv[3], "result.json").write_text(\'{"metrics": {"number": 1}}\')\n'
        'sys.exit(7)\n'
    )
    monkeypatch.setattr('mmrank.apis.seeds.runs.SCRIPT', (str(script),))
    (outcome,) = queue.run(runs)
    assert (outcome.metrics, outcome.error, deaths) == ({'number': 1.0}, '', [])


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['--executor-options', 'cpus_per_task=2'], 'local and has the options'),
        (['--executor', 'slurm', '--jobs', '0'], '`jobs` is 0'),
        (['--executor', 'slurm', '--executor-options', 'x'], 'KEY=VALUE'),
    ],
)
def test_wrong_executors_are_named(words, message):
    with pytest.raises(UserError, match=message):
        make_executor(*read(words))


def read(words, **fields):
    fields = dict(seeds=[0], metrics=['a'], methods=[{'config': __file__}], **fields)
    return make_parser(None).parse_args(['--plan', 'x', *words]), parse_plan(fields)


def test_plan_names_the_executor(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr('mmrank.apis.seeds.arguments.SlurmExecutor', lambda *x: made.append(x))
    executor = dict(type='slurm', slurm_partition='gpu', timeout_min=480, cpus_per_task=4)
    words = ['--executor-options', 'cpus_per_task=8']
    make_executor(*read(words, executor=executor, out_dir=str(tmp_path)))
    options = dict(slurm_partition='gpu', timeout_min='480', cpus_per_task='8')
    assert made == [(tmp_path / '.slurm', options, None)]
    with pytest.raises(UserError, match="`executor` is 'lsf'"):
        make_executor(*read([], executor='lsf'))
    # Another executor on the command line has options of its own.
    found = make_executor(*read(['--executor', 'local'], executor=executor))
    assert isinstance(found, LocalExecutor)


@pytest.mark.slow
def test_slurm_local(make_queue, tmp_path):
    pytest.importorskip('submitit')
    options = dict(cluster='local', timeout_min='60')
    check_deaths(make_queue, SlurmExecutor(tmp_path / 'jobs', options, jobs=2))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='of Linux alone')
def test_the_end_of_a_job_ends_its_command(tmp_path):
    pytest.importorskip('submitit')
    executor = SlurmExecutor(tmp_path / 'jobs', dict(cluster='local', timeout_min='60'))
    log = tmp_path / 'output.log'
    code = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'
    job = executor.start([sys.executable, '-c', code], log, 'a')
    while not log.exists() or not log.read_text().endswith('\n'):
        time.sleep(0.02)
    assert job.poll() is None
    job.end()
    end = time.monotonic() + 20
    while Path(f'/proc/{log.read_text().strip()}').exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(cluster='lsf', timeout_min='9'), "'?lsf'?"),
        (dict(cluster='local', timeout_min='9', cpus_per_task='x'), '"cpus_per_task" expected'),
        (dict(cluster='local', timeout_min='9', speed='9'), 'speed'),
        (dict(timeout_min='60'), 'srun'),
        (dict(slurm_partition='gpu'), '`executor.timeout_min` is missing'),
    ],
)
def test_wrong_slurm_options_are_named(options, message, tmp_path, monkeypatch):
    pytest.importorskip('submitit')
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(UserError, match=message):
        SlurmExecutor(tmp_path / 'jobs', options)


SLURM = {'sbatch': 'cp "$1" "$0.seen"; echo "Submitted batch job 7"', 'srun': ''}


def test_options_of_a_job_reach_sbatch(make_queue, tmp_path, monkeypatch):
    pytest.importorskip('submitit')
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    for name, text in SLURM.items():
        path = tmp_path / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path / "bin"}{os.pathsep}{os.environ["PATH"]}')
    options = dict(timeout_min='60', slurm_partition='gpu', cpus_per_task='3', gpus_per_node='1')
    executor = SlurmExecutor(tmp_path / 'jobs', options)
    queue, (run,), _ = make_queue(executor, seeds=[0])
    queue._start(run)
    script = (tmp_path / 'bin' / 'sbatch.seen').read_text()
    for flag in (
        *('partition=gpu', 'time=60', 'cpus-per-task=3', 'gpus-per-node=1'),
        "job-name='final a seed 0'",
    ):
        assert f'#SBATCH --{flag}\n' in script
    submitted = next((tmp_path / 'jobs').glob('*_submitted.pkl')).read_bytes()
    assert b'OMP_NUM_THREADS=3' in submitted


@pytest.mark.parametrize('version', [None, '0.9.1'])
def test_wrong_extra_has_one_message(version, tmp_path, monkeypatch, run_script):
    fake = None if version is None else SimpleNamespace(__version__=version)
    monkeypatch.setitem(sys.modules, 'submitit', fake)
    config = tmp_path / 'a.py'
    config.write_text('x = 1\n')
    plan = {'methods': [str(config)], 'seeds': [0], 'metrics': 'a', 'out_dir': str(tmp_path)}
    (tmp_path / 'plan.yaml').write_text(json.dumps(plan))
    tool = Path(__file__).parents[3] / 'tools' / 'benchmarks' / 'run_seeds.py'
    status, _, errors = run_script(tool, '--plan', tmp_path / 'plan.yaml', '--executor', 'slurm')
    assert status == 2
    least = VERSIONS['submitit']
    wrong = {
        None: 'submitit, which is not installed.',
        '0.9.1': f'submitit {least} or later; 0.9.1 is installed.',
    }
    assert errors == (
        f"error: --executor slurm requires {wrong[version]} Fix: pip install 'mmrank[slurm]'\n"
    )
