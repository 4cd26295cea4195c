"""Two trainings never share a work folder."""

import os
import signal
import subprocess
import sys

import pytest
from tiny_tool_run import TRAIN, environment, write_config

from mmrank.apis.common.folder_lock import lock_folder
from mmrank.errors import UserError
from mmrank.files import _process_lives

NAME = '.training.lock'
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from mmrank.apis.common.folder_lock import lock_folder
with lock_folder(sys.argv[1], '.training.lock'):
    print('held', flush=True)
    time.sleep(60)
"""


def start_holder(folder, code=HOLD):
    """Start a process that holds the folder."""
    return subprocess.Popen(
        [sys.executable, '-c', code, str(folder), str(TRAIN.parent)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )


@pytest.fixture
def holder(tmp_path):
    """A process that holds ``tmp_path``."""
    process = start_holder(tmp_path)
    assert process.stdout.readline() == 'held\n'
    yield process
    process.kill()
    process.wait()


def test_a_folder_in_use_is_refused_until_its_process_dies(tmp_path, holder):
    with pytest.raises(UserError, match='is in use by another process') as caught:
        lock_folder(tmp_path, NAME).__enter__()
    assert str(tmp_path) in str(caught.value)
    with lock_folder(tmp_path):  # another lock
        pass
    holder.kill()
    holder.wait()
    for _ in range(2):
        with lock_folder(tmp_path, NAME):
            pass


def test_children_do_not_keep_the_lock(tmp_path):
    # As data loading workers, which outlive a killed training by seconds.
    code = HOLD.replace("print('held'", 'import os\n    if not os.fork(): print(os.getpid()')
    process = start_holder(tmp_path, code)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert _process_lives(child)
    with lock_folder(tmp_path, NAME):
        pass
    os.kill(child, signal.SIGKILL)


@pytest.mark.usefixtures('holder')
def test_training_refuses_a_folder_in_use(tmp_path, run_script):
    status, _, errors = run_script(TRAIN, write_config(tmp_path), '--work-dir', tmp_path)
    assert status == 2
    assert f'{tmp_path} is in use by another process' in errors
    assert 'Fix: wait until it has ended, or choose another folder' in errors
    assert not list(tmp_path.glob('*.pth'))


@pytest.mark.parametrize('name', ['.training.lock', 'tiny.py'])
@pytest.mark.parametrize('link', [os.symlink, os.link])
def test_links_in_a_work_folder_are_refused(tmp_path, run_script, name, link):
    """What they lead to would be emptied, or hold the config."""
    config, precious = write_config(tmp_path), tmp_path / 'precious.txt'
    precious.write_text('mine')
    (tmp_path / 'work').mkdir()
    link(precious, tmp_path / 'work' / name)
    status, _, errors = run_script(TRAIN, config, '--cfg-options', 'train_cfg.max_epochs=1')
    assert status == 2
    assert f'{name} is a link' in errors
    assert precious.read_text() == 'mine'
