"""Processes that are copies of one that has imported what they need."""

import os
import subprocess
import sys
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
