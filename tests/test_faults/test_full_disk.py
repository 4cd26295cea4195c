"""A disk that is full in the middle: one message, and nothing half-written."""

import os
import subprocess
from pathlib import Path

import pytest
import resume_run
from forked_processes import run_script
from tiny_tool_run import ROOT, TRAIN, write_config
from training_ends import assert_same, contents

from mmrank.engine.resume.checkpoint import _find_damage, find_last_whole_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.processes]
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


def test_data_set_gets_no_annotations_of_missing_images(disk):
    sizes = ['--num-train', 400, '--num-val', 1, '--num-test', 0]
    done = run_script(MAKE_SHAPES, '--out', disk / 'shapes', *sizes)
    assert_one_message(done, 'the disk is full')
    assert not list(disk.rglob('*.json*'))
