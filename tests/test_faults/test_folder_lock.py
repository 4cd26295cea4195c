"""Two trainings never share a work folder."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_tool_run import TRAIN, environment, start_tool, write_config

from lib.common import folder_lock
from lib.common.folder_lock import FolderHeldError, FolderLock
from mmrank.files import process_lives

HOLD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from lib.common.folder_lock import FolderLock
FolderLock(sys.argv[1]).acquire()
print('held', flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds ``<tmp_path>/lock``."""
    process = subprocess.Popen(
        [sys.executable, '-c', HOLD, str(tmp_path / '.training.lock'), str(TRAIN.parent)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout.readline() == 'held\n'
    yield process
    process.kill()
    process.wait()


def test_owner_is_named(tmp_path, holder):
    with pytest.raises(FolderHeldError) as caught:
        FolderLock(tmp_path / '.training.lock').acquire()
    message = str(caught.value)
    assert str(tmp_path) in message
    assert f'process {holder.pid} of host' in message
    assert socket.gethostname() in message


def test_lock_of_the_dead_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    lock = FolderLock(tmp_path / '.training.lock')
    assert f'process {holder.pid} of' in lock.acquire()
    lock.release()
    assert lock.acquire() is None  # a clean release leaves no owner
    lock.release()


def test_force_goes_on_beside_the_owner(tmp_path, holder):
    lock = FolderLock(tmp_path / '.training.lock')
    assert f'process {holder.pid} of' in lock.acquire(force=True)
    lock.release()
    assert holder.poll() is None


def test_children_do_not_keep_the_lock(tmp_path):
    # As data loading workers, which outlive a killed training by seconds.
    code = HOLD.replace("print('held'", 'import os\nchild = os.fork()\nif child: print(child')
    process = subprocess.Popen(
        [sys.executable, '-c', code, str(tmp_path / '.training.lock'), str(TRAIN.parent)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert process_lives(child)
    lock = FolderLock(tmp_path / '.training.lock')
    assert f'process {process.pid} of' in lock.acquire()
    lock.release()
    os.kill(child, signal.SIGKILL)


def test_within_a_process_too(tmp_path):
    with FolderLock(tmp_path / '.training.lock') as lock:
        with pytest.raises(FolderHeldError, match=f'process {os.getpid()} '):
            FolderLock(tmp_path / '.training.lock').acquire()
        assert lock.path.read_text('utf-8')


def write_owner(path, **changes):
    """Write the record of an owner that has not released the lock."""
    owner = {**folder_lock._this_process(), **changes}
    path.write_text(json.dumps(owner), 'utf-8')


@pytest.mark.parametrize(
    ('changes', 'is_free'),
    [
        ({'pid': os.getppid()}, True),  # its lock would be the kernel's
        ({'boot': 'before', 'pid': os.getppid()}, True),
        ({'boot': 'other', 'host': 'other', 'pid': 1}, False),
    ],
    ids=['same-host', 'restarted', 'other-host'],
)
def test_record_without_a_lock(tmp_path, changes, is_free):
    write_owner(tmp_path / '.training.lock', **changes)
    lock = FolderLock(tmp_path / '.training.lock')
    if is_free:
        assert lock.acquire()
        lock.release()
        return
    with pytest.raises(FolderHeldError, match='of host other'):
        lock.acquire()
    assert lock.acquire(force=True)
    lock.release()


def test_file_system_without_locks(tmp_path, monkeypatch):
    class NoLocks:
        LOCK_EX = LOCK_NB = 0

        def lockf(self, *_):
            raise OSError(38, 'Function not implemented')

    monkeypatch.setattr(folder_lock, 'fcntl', NoLocks())
    lock = FolderLock(tmp_path / '.training.lock')
    write_owner(tmp_path / '.training.lock', pid=os.getppid())
    with pytest.raises(FolderHeldError, match=f'process {os.getppid()} '):
        lock.acquire()
    with subprocess.Popen(['true']) as dead:
        pass
    write_owner(tmp_path / '.training.lock', pid=dead.pid)
    assert lock.acquire()
    lock.release()


@pytest.mark.parametrize('text', ['', '{', '[]', '7', '{"pid": "x"}', '\x00'])
def test_torn_record(tmp_path, text):
    (tmp_path / '.training.lock').write_text(text, 'utf-8')
    lock = FolderLock(tmp_path / '.training.lock')
    if 'pid' in text:  # nobody knows of which host
        with pytest.raises(FolderHeldError):
            lock.acquire()
        return
    assert lock.acquire() is None
    lock.release()


def test_training_refuses_a_folder_in_use(tmp_path, holder, run_script):
    config = write_config(tmp_path)
    options = [config, '--work-dir', tmp_path, '--cfg-options']
    options.append('train_cfg.max_epochs=1')
    status, _, errors = run_script(TRAIN, *options)
    assert status == 2
    assert f'process {holder.pid} of host' in errors
    assert '--force' in errors
    assert not list(tmp_path.glob('*.pth'))
    status, output, _ = run_script(TRAIN, *options, '--force')
    assert status == 0
    assert f'taken over from process {holder.pid}' in output


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


def test_a_config_with_a_base_is_not_overwritten(tmp_path, run_script):
    write_config(tmp_path)
    config = tmp_path / 'mine.py'
    config.write_text("_base_ = 'tiny.py'\n")
    status, _, errors = run_script(TRAIN, config, '--work-dir', tmp_path)
    assert status == 2
    assert 'holds the config, which would be overwritten' in errors
    assert config.read_text() == "_base_ = 'tiny.py'\n"


@pytest.mark.slow
def test_second_training_waits_for_none(tmp_path):
    config = write_config(tmp_path)
    endless = ['--cfg-options', 'train_cfg.max_epochs=100000']
    first = start_tool(TRAIN, config, *endless)
    pointer = tmp_path / 'work' / 'last_checkpoint'
    try:
        while not pointer.exists():
            assert first.poll() is None
            time.sleep(0.1)
        second = start_tool(TRAIN, config)
        output = second.communicate(timeout=120)[0]
        assert second.returncode == 2, output
        assert f'process {first.pid} of host' in output
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    third = start_tool(TRAIN, config, '--resume')
    output = third.communicate(timeout=300)[0]
    assert third.returncode == 0, output
    assert f'taken over from process {first.pid}' in output
    assert not list(Path(tmp_path / 'work').glob('.*.tmp'))
