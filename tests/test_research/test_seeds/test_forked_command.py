"""Commands forked from one process behave as those started on their own."""

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from research.seeds.executors import ForkedCommand, LocalExecutor, end_process
from research.seeds.plan import parse_plan
from research.seeds.runs import RunQueue

FAKE = """
    import json, os, pathlib, sys, time
    import beside
    work_dir, result, seed, *options = sys.argv[1:]
    print('seed', seed, __name__)
    if 'fail=' + seed in options:
        sys.exit('something broke')
    if 'sleep=' + seed in options:
        time.sleep(600)
    metrics = {'acc': int(seed), 'threads': os.environ['OMP_NUM_THREADS'],
               'group': os.getpgid(0) == os.getpid(),
               'folder': os.getcwd(), 'beside': beside.VALUE}
    pathlib.Path(result).write_text(json.dumps({'metrics': metrics}))
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / 'beside.py').write_text('VALUE = 7\n')
    path = tmp_path / 'fake_train.py'
    path.write_text(textwrap.dedent(FAKE))
    return path


def test_queue_of_forks(tmp_path, script):
    (tmp_path / 'a.py').write_text('x = 1\n')
    plan = parse_plan(
        dict(
            out_dir=str(tmp_path / 'out'),
            seeds=[3, 4],
            metrics=['acc'],
            methods=[{'config': str(tmp_path / 'a.py')}],
            cfg_options=dict(fail=4),
        )
    )
    template = f'{{python}} {script} {{work_dir}} {{result}} {{seed}}'
    executor = LocalExecutor(jobs=2, forked=True)
    queue = RunQueue(plan, template + ' {cfg_options}', executor, retries=0)
    good, bad = queue.run(plan.final_runs())
    assert good.metrics['acc'] == 3
    found = json.loads(good.run.result_file.read_text())['metrics']
    assert found['group']
    assert found['beside'] == 7
    assert found['folder'] == os.getcwd()
    assert int(found['threads']) >= 1
    assert 'seed 3 __main__' in (good.run.folder / 'output.log').read_text()
    assert bad.metrics is None
    assert 'exit status 1' in bad.error
    assert 'something broke' in bad.error


def test_a_fork_can_be_ended(tmp_path, script):
    command = [sys.executable, str(script), 'x', 'y', '5', 'sleep=5']
    process = ForkedCommand(command, tmp_path / 'log', dict(os.environ))
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    assert process.poll() is None
    start = time.monotonic()
    end_process(process)
    assert process.returncode < 0
    assert time.monotonic() - start < 9
