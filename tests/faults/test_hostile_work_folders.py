"""A work folder that others may write to: no file of it runs code, and each is one message."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import resume_run
import torch
from fake_training import write_training
from forked_processes import run_script
from tiny_tool_run import ROOT, TRAIN, environment, write_config
from training_ends import assert_same, contents

from mmrank.engine.resume.checkpoint import _find_damage, find_last_whole_checkpoint
from mmrank.errors import UserError
from mmrank.files import _is_dead
from mmrank.runners.folder_lock import lock_folder

SEEDS = ROOT / 'tools/research/run_seeds.py'


class Bomb:
    """Its pickle makes a folder where it is read."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def instead(make):
    """A way that puts something else in place of the file."""

    def way(file, place):
        file.unlink()
        make(file, place)

    return way


#: What becomes of a file; the bombs explode at the place.
WAYS = {
    'pickle': lambda file, place: file.write_bytes(pickle.dumps(Bomb(place))),
    'torch file': lambda file, place: torch.save(Bomb(place), file.open('wb')),
    'link': instead(lambda file, place: file.symlink_to(place.with_name('precious'))),
    'lost link': instead(lambda file, place: file.symlink_to(place.with_name('nowhere'))),
    'huge': lambda file, place: file.open('wb').truncate(2**26),
    'torn': lambda file, place: os.truncate(file, file.stat().st_size // 2),
    'empty': lambda file, place: os.truncate(file, 0),
    'folder': instead(lambda file, place: file.mkdir()),
    'other JSON': lambda file, place: file.write_text(
        '{"metrics": [1], "losses": ["own"], "curve": {"a": 1}, "step": []}'
    ),
}


@pytest.fixture(scope='module')
def seeds(tmp_path_factory):
    """Folder with a plan of two seeds that is finished."""
    folder = tmp_path_factory.mktemp('seeds')
    (folder / 'a.py').write_text('x = 1\n')
    plan = dict(methods=['a.py'], seeds=[0, 1], metrics=['acc'], out_dir='work')
    (folder / 'plan.yaml').write_text(json.dumps(plan))
    write_training(folder)
    return folder


def call_seeds(run_script, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr('mmrank.experiments.runs.POLL_SECONDS', 0.02)
    monkeypatch.setattr('mmrank.experiments.runs.SCRIPT', ('./fake_train.py',))
    return run_script(SEEDS, '--plan', 'plan.yaml', '--retries', 0)


def call_train(run_script, folder, monkeypatch):
    monkeypatch.chdir(folder)
    return run_script(TRAIN, 'tiny.py', '--work-dir', 'work', '--resume')


@pytest.mark.parametrize(
    'way', [pytest.param(x, marks=[pytest.mark.slow] * (x != 'pickle')) for x in WAYS]
)
@pytest.mark.parametrize('name', ['seeds', 'train'])
def test_no_file_of_a_work_folder_runs_code(
    name, way, seeds, trained, run_script, tmp_path, monkeypatch
):
    source = seeds if name == 'seeds' else trained[1].parent
    call = call_seeds if name == 'seeds' else call_train
    if not (source / 'work').is_dir():
        assert call(run_script, source, monkeypatch)[0] == 0
    (tmp_path / 'precious').write_text('mine')
    names = [x.relative_to(source) for x in (source / 'work').rglob('*') if x.is_file()]
    assert len(names) > 5
    for index, file in enumerate(names):
        folder = tmp_path / str(index)
        shutil.copytree(source, folder)
        WAYS[way](folder / file, tmp_path / 'exploded')
        status, output, errors = call(run_script, folder, monkeypatch)
        said = output + errors
        assert not (tmp_path / 'exploded').exists(), file
        assert (tmp_path / 'precious').read_text() == 'mine', file
        assert status in (0, 1, 2), said
        assert 'Traceback' not in said, f'{file}: {said[-3000:]}'
        assert errors.count('error: ') == (status == 2), errors
        assert status == 0 or 'Fix: ' in said, said[-3000:]


MAKE_SHAPES = ROOT / 'tools' / 'dataset_converters' / 'make_shapes_coco.py'


@pytest.fixture
def disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip('mounting a file system is not permitted here')
    yield folder
    subprocess.run(['umount', folder], check=True)


def assert_one_message(done, *texts):
    """Check that the tool gives the reason and the fix, no traceback."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert all(text in done.stderr for text in texts)
    assert 'Fix: free some disk space' in done.stderr
    assert 'Traceback' not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.processes
def test_training_steps_back_to_the_last_checkpoint(disk, tmp_path):
    config = write_config(tmp_path)
    resume_run.train(str(tmp_path / 'whole'), {}, None, False)
    size = (tmp_path / 'whole' / 'epoch_4.pth').stat().st_size
    work_dir = disk / 'work'
    # Two checkpoints have room, the third has not.
    with open(disk / 'filler', 'wb') as file:
        file.write(bytes((1 << 20) - int(2.7 * size) - 40_000))
    options = [config, '--work-dir', work_dir, '--resume']
    done = run_script(TRAIN, *options, cwd=tmp_path)
    assert_one_message(done, 'No space left on device', 'epoch_3.pth')
    names = sorted(path.name for path in work_dir.glob('*.pth'))
    assert names == ['epoch_1.pth', 'epoch_2.pth']
    assert all(_find_damage(path) is None for path in work_dir.glob('*.pth'))
    assert not list(work_dir.glob('.*.tmp'))
    last = find_last_whole_checkpoint(work_dir)
    assert Path(last).name == 'epoch_2.pth'

    os.remove(disk / 'filler')
    done = run_script(TRAIN, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f'Resuming from {last}' in done.stdout
    name = 'epoch_4.pth'
    whole = contents(tmp_path / 'whole' / name)
    assert_same(contents(work_dir / name), whole)


@pytest.mark.slow
@pytest.mark.processes
def test_data_set_gets_no_annotations_of_missing_images(disk):
    sizes = ['--num-train', 400, '--num-val', 1, '--num-test', 0]
    done = run_script(MAKE_SHAPES, '--out', disk / 'shapes', *sizes)
    assert_one_message(done, 'the disk is full')
    assert not list(disk.rglob('*.json*'))


NAME = '.training.lock'
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from mmrank.runners.folder_lock import lock_folder
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
    assert not _is_dead(child)
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
    assert f'{name} cannot be written: it is a link, ' in errors
    assert precious.read_text() == 'mine'
