"""Slurm (as submitit tries it, and a stand-in), forks, and runs that die."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_training import command_of, plan_of_one, write_training

from lib.seeds.arguments import make_executor, make_parser
from lib.seeds.executors import (
    ForkedCommand,
    LocalExecutor,
    RemoteCommand,
    SlurmExecutor,
    end_process,
    minutes,
)
from lib.seeds.plan import parse_plan
from lib.seeds.runs import RunQueue
from mmrank.errors import UserError
from mmrank.imports import VERSIONS


@pytest.fixture
def make_queue(tmp_path):
    """Make a queue and its runs, with what the fake training is to do."""
    template = command_of(write_training(tmp_path))

    def make(executor, seeds=(0, 1, 2), **options):
        executor.poll_seconds = 0.05
        executor.file_seconds = 0.5
        plan = plan_of_one(tmp_path, seeds, **options)
        deaths = []
        queue = RunQueue(
            plan, template, executor, on_again=lambda run, fault: deaths.append((run.seed, fault))
        )
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


def test_what_cannot_be_started_is_reported(make_queue):
    executor = LocalExecutor()
    queue, runs, _deaths = make_queue(executor, seeds=[0])
    queue.template = '/nowhere/python {result} {seed}'
    (outcome,) = queue.run(runs)
    assert 'No such file' in outcome.error
    assert '(started 2 times)' in outcome.error
    assert executor._free == [0]


def test_a_result_counts_however_its_command_ended(make_queue, tmp_path):
    queue, runs, deaths = make_queue(LocalExecutor(), seeds=[0])
    script = tmp_path / 'late.py'
    script.write_text(
        'import pathlib, sys\n'
        'pathlib.Path(sys.argv[1]).write_text(\'{"metrics": {"number": 1}}\')\n'
        'sys.exit(7)\n'
    )
    queue.template = f'{{python}} {script} {{result}} {{seed}}'
    (outcome,) = queue.run(runs)
    assert (outcome.metrics, outcome.error, deaths) == ({'number': 1.0}, '', [])


@pytest.mark.skipif(sys.platform != 'linux', reason='of Linux alone')
def test_a_remote_command_ends_with_its_caller(tmp_path):
    pid = tmp_path / 'pid'
    code = (
        'import os, pathlib, time\n'
        f'pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n'
        'time.sleep(60)'
    )
    command = RemoteCommand([sys.executable, '-c', code], tmp_path / 'log', {})
    caller = os.fork()
    if caller == 0:  # as a scheduler's worker
        try:
            command()
        finally:
            os._exit(0)
    while not pid.exists() or not pid.read_text():
        time.sleep(0.02)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    end = time.monotonic() + 20
    while Path(f'/proc/{pid.read_text()}').exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_time_limits_of_sbatch():
    expected = {
        '90': 90,
        '90:00': 90,
        '90:01': 91,
        '8:00:00': 480,
        '1-2': 26 * 60,
        '1-0:30': 1470,
        '1-00:00:30': 1441,
    }
    assert {text: minutes(text) for text in expected} == expected
    for wrong in ('8h', '', '0', '1:2:3:4'):
        with pytest.raises(UserError, match='`executor.time` is'):
            minutes(wrong)


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['--executor', 'slurm', '--gpus', '0'], '--gpus and --forked'),
        (['--executor', 'slurm', '--forked'], '--gpus and --forked'),
        (['--executor-options', 'cpus=2'], 'local and has the options'),
        (['--executor', 'slurm', '--jobs', '0'], '`jobs` is 0'),
        (['--executor', 'slurm', '--executor-options', 'x'], 'KEY=VALUE'),
    ],
)
def test_wrong_executors_are_named(words, message):
    with pytest.raises(UserError, match=message):
        make_executor(*read(words))


def read(words, **fields):
    fields = dict(seeds=[0], metrics=['a'], methods=[{'config': __file__}], **fields)
    return make_parser(None, '').parse_args(['--plan', 'x', *words]), parse_plan(fields)


def test_plan_names_the_executor(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr('lib.seeds.arguments.SlurmExecutor', lambda *x: made.append(x))
    executor = dict(type='slurm', partition='gpu', time='8:00:00', cpus=4)
    words = ['--executor-options', 'cpus=8']
    make_executor(*read(words, executor=executor, out_dir=str(tmp_path)))
    assert made == [(tmp_path / '.slurm', dict(partition='gpu', time='8:00:00', cpus='8'), None)]
    with pytest.raises(UserError, match="`executor` is 'lsf'"):
        make_executor(*read([], executor='lsf'))
    # Another executor on the command line has options of its own.
    found = make_executor(*read(['--executor', 'local'], executor=executor))
    assert isinstance(found, LocalExecutor)


# Slurm by submitit


@pytest.mark.slow
def test_slurm_local(make_queue, tmp_path):
    pytest.importorskip('submitit')
    executor = SlurmExecutor(tmp_path / 'jobs', dict(cluster='local'), jobs=2)
    check_deaths(make_queue, executor)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(cluster='lsf'), '`executor.cluster` is'),
        (dict(cluster='local', cpus='x'), '`executor.cpus` is'),
        (dict(cluster='local', speed='9'), 'speed'),
        (dict(time='60'), 'srun'),
        (dict(partition='gpu'), '`executor.time` is missing'),
    ],
)
def test_wrong_slurm_options_are_named(options, message, tmp_path, monkeypatch):
    pytest.importorskip('submitit')
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(UserError, match=message):
        SlurmExecutor(tmp_path / 'jobs', options)


SLURM = {
    # A job is a background process; its number that of a counter.
    'sbatch': """
        id=$(( $(cat "$DB/next" 2>/dev/null || echo 100) + 1 ))
        echo $id > "$DB/next"
        cp "$1" "$DB/$id.sh"
        echo RUNNING > "$DB/$id"
        export SLURM_JOB_ID=$id
        # submitit waits until nobody holds the output of sbatch.
        (sh "$1"
         grep -q RUNNING "$DB/$id" && echo FAILED > "$DB/$id") \\
            < /dev/null > /dev/null 2>&1 &
        echo "Submitted batch job $id"
    """,
    'srun': """
        while [ $# -gt 0 ]; do case "$1" in
            --unbuffered) shift;; --output|--error) shift 2;; *) break;;
        esac; done
        echo $$ > "$DB/$SLURM_JOB_ID.pid"
        exec "$@"
    """,
    'sacct': """
        echo 'JobID|State|NodeList'
        for file in "$DB"/[0-9]*; do case "$file" in *.*) ;; *)
            echo "$(basename "$file")|$(cat "$file")|node";; esac; done
    """,
    'scancel': """
        echo CANCELLED > "$DB/$1"
        kill -9 $(cat "$DB/$1.pid")
    """,
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Stand-ins for the commands of Slurm; gives their folder."""
    pytest.importorskip('submitit')
    for name, text in SLURM.items():
        path = tmp_path / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('#!/bin/sh\n' + textwrap.dedent(text))
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
    (tmp_path / 'db').mkdir()
    monkeypatch.setenv('DB', str(tmp_path / 'db'))
    monkeypatch.setenv('PATH', f'{tmp_path / "bin"}{os.pathsep}{os.environ["PATH"]}')
    return tmp_path / 'db'


def on_slurm(tmp_path):
    options = dict(time='1:00:00', partition='gpu', cpus='3', gpus='1')
    return SlurmExecutor(tmp_path / 'jobs', options)


@pytest.mark.slow
def test_slurm_stand_in(make_queue, slurm, tmp_path, monkeypatch):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    check_deaths(make_queue, on_slurm(tmp_path))
    script = (slurm / '101.sh').read_text()
    for flag in (
        *('partition=gpu', 'time=60', 'cpus-per-task=3', 'gpus-per-node=1'),
        "job-name='final a seed 0'",
    ):
        assert f'#SBATCH --{flag}\n' in script
    results = list((tmp_path / 'out').rglob('result.json'))
    assert json.loads(results[0].read_text())['metrics']['threads'] == '3'


@pytest.mark.slow
def test_jobs_of_a_killed_tool_are_found_again(make_queue, slurm, tmp_path):
    queue, (run,), _ = make_queue(on_slurm(tmp_path), seeds=[0], hang=0)
    left = queue._start(run)  # and the tool is killed
    record = run.folder / 'slurm_job.json'
    assert record.is_file()
    while not (slurm / '101.pid').exists():
        time.sleep(0.02)
    fresh = on_slurm(tmp_path)
    found = fresh.start(['never'], run.folder / 'output.log', run.label)
    assert found._job.job_id == left._job.job_id
    found.end()
    assert (slurm / '101').read_text() == 'CANCELLED\n'
    assert not record.exists()
    assert not (slurm / '102').exists()
    # A job that is gone without a result is submitted anew.
    record.write_text(json.dumps(dict(id='101', folder=str(tmp_path))))
    done = fresh.start(['true'], run.folder / 'output.log', run.label)
    assert done._job.job_id == '102'


@pytest.mark.parametrize('version', [None, '0.9.1'])
def test_wrong_extra_has_one_message(version, tmp_path, monkeypatch, run_script):
    fake = None if version is None else SimpleNamespace(__version__=version)
    monkeypatch.setitem(sys.modules, 'submitit', fake)
    config = tmp_path / 'a.py'
    config.write_text('x = 1\n')
    plan = {'methods': [str(config)], 'seeds': [0], 'metrics': 'a', 'out_dir': str(tmp_path)}
    (tmp_path / 'plan.json').write_text(json.dumps(plan))
    tool = Path(__file__).parents[3] / 'tools' / 'benchmarks' / 'run_seeds.py'
    status, _, errors = run_script(tool, '--plan', tmp_path / 'plan.json', '--executor', 'slurm')
    assert status == 2
    least = VERSIONS['submitit']
    wrong = {
        None: 'submitit, which is not installed.',
        '0.9.1': f'submitit {least} or later; 0.9.1 is installed.',
    }
    assert errors == (
        f"error: --executor slurm requires {wrong[version]} Fix: pip install 'mmrank[slurm]'\n"
    )


def test_queue_of_forks(make_queue):
    queue, (good, bad), _ = make_queue(LocalExecutor(jobs=2, forked=True), seeds=[3, 4], fail=4)
    queue.retries = 0
    good, bad = queue.run([good, bad])
    assert good.metrics['number'] == 3
    found = json.loads(good.run.result_file.read_text())['metrics']
    assert found['group']
    assert found['beside'] == 7
    assert found['folder'] == os.getcwd()
    assert int(found['threads']) >= 1
    assert 'seed 3 __main__' in (good.run.folder / 'output.log').read_text()
    assert bad.metrics is None
    assert 'exit status 1' in bad.error
    assert 'something broke' in bad.error


def test_a_fork_can_be_ended(tmp_path):
    script = write_training(tmp_path)
    command = [sys.executable, *map(str, (script, 'a.py', tmp_path, 'test', 'y', '5', 'hang=5'))]
    process = ForkedCommand(command, tmp_path / 'log', dict(os.environ))
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    assert process.poll() is None
    start = time.monotonic()
    end_process(process)
    assert process.returncode < 0
    assert time.monotonic() - start < 9
