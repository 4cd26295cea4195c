"""Processes that are copies of one that has imported what they need."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mmrank

STARTER = """
import os
from mmrank.runners.processes import start_process
process = start_process(['work.py'], 'log.txt', 1)
process.join()
assert process.exitcode == 0
print(sum(os.times()[:2]), flush=True)
"""


@pytest.mark.processes
def test_their_seconds_count_for_who_waits_for_their_starter(tmp_path):
    (tmp_path / 'work.py').write_text('import time\nwhile time.process_time() < 1: pass')
    command = [sys.executable, '-c', STARTER]
    environment = {**os.environ, 'PYTHONPATH': str(Path(mmrank.__file__).parents[1])}
    starter = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    own = float(starter.stdout.read())
    _, status, usage = os.wait4(starter.pid, 0)
    starter.returncode = os.waitstatus_to_exitcode(status)
    assert starter.returncode == 0
    # An interpreter takes half a second to end.
    assert usage.ru_utime + usage.ru_stime - own > 1.5


@pytest.mark.processes
def test_a_kill_of_their_starter_ends_them(tmp_path):
    (tmp_path / 'work.py').write_text(
        'import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)'
    )
    environment = {**os.environ, 'PYTHONPATH': str(Path(mmrank.__file__).parents[1])}
    starter = subprocess.Popen([sys.executable, '-c', STARTER], cwd=tmp_path, env=environment)
    log = tmp_path / 'log.txt'
    wait_for(lambda: log.is_file() and log.read_text().endswith('\n'))
    starter.kill()
    starter.wait()
    wait_for(lambda: not Path('/proc', log.read_text().strip()).exists())


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
