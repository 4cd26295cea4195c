"""A work folder that others may write to: no file of it runs code, and each is one message."""

import json
import os
import pickle
import shutil
import signal

import pytest
import torch
from fake_training import write_training
from malformed_files import Call
from tiny_tool_run import ROOT, TRAIN, start_python, write_config

from mmrank.errors import UserError
from mmrank.files import _is_dead
from mmrank.runners.folder_lock import lock_folder

SEEDS = ROOT / 'tools/research/run_seeds.py'


def instead(make):
    """A way that puts something else in place of the file."""

    def way(file, place):
        file.unlink()
        make(file, place)

    return way


def write_torch_file(file, place):
    # torch itself opens no file whose name starts with a dot.
    with file.open('wb') as stream:
        torch.save(Call(os.mkdir, str(place)), stream)


#: What becomes of a file; ``place`` is made where its pickle runs.
WAYS = {
    'pickle': lambda file, place: file.write_bytes(pickle.dumps(Call(os.mkdir, str(place)))),
    'torch file': write_torch_file,
    'link': instead(lambda file, place: file.symlink_to(place.with_name('precious'))),
    'lost link': instead(lambda file, place: file.symlink_to('nowhere')),
    'folder': instead(lambda file, place: file.mkdir()),
    'huge': lambda file, place: os.truncate(file, 2**26),
    'torn': lambda file, place: os.truncate(file, file.stat().st_size // 2),
    'empty': lambda file, place: os.truncate(file, 0),
    'other JSON': lambda file, place: file.write_text('{"metrics": [1], "curve": {"a": 1}}'),
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


def call(name, run_script, folder, monkeypatch):
    """Run the plan again, or resume the training, in a folder."""
    monkeypatch.chdir(folder)
    if name == 'train':
        return run_script(TRAIN, 'tiny.py', '--work-dir', 'work', '--resume')
    monkeypatch.setattr('mmrank.experiments.runs.POLL_SECONDS', 0.02)
    monkeypatch.setattr('mmrank.experiments.runs.SCRIPT', ('./fake_train.py',))
    return run_script(SEEDS, '--plan', 'plan.yaml', '--retries', 0)


@pytest.mark.parametrize(
    'way', [pytest.param(x, marks=[pytest.mark.slow] * (x != 'pickle')) for x in WAYS]
)
@pytest.mark.parametrize('name', ['seeds', 'train'])
def test_no_file_of_a_work_folder_runs_code(
    name, way, seeds, trained, run_script, tmp_path, monkeypatch
):
    source = seeds if name == 'seeds' else trained[1].parent
    if not (source / 'work').is_dir():
        assert call(name, run_script, source, monkeypatch)[0] == 0
    (tmp_path / 'precious').write_text('mine')
    names = [x.relative_to(source) for x in (source / 'work').rglob('*') if x.is_file()]
    assert len(names) > 5
    for index, file in enumerate(names):
        folder = tmp_path / str(index)
        shutil.copytree(source, folder)
        WAYS[way](folder / file, tmp_path / 'exploded')
        status, output, errors = call(name, run_script, folder, monkeypatch)
        said = output + errors
        assert not (tmp_path / 'exploded').exists(), file
        assert (tmp_path / 'precious').read_text() == 'mine', file
        assert status in (0, 1, 2), said
        assert 'Traceback' not in said, f'{file}: {said[-3000:]}'
        assert errors.count('error: ') == (status == 2), errors
        assert status == 0 or 'Fix: ' in said, said[-3000:]


NAME = '.training.lock'
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from mmrank.runners.folder_lock import lock_folder
with lock_folder(sys.argv[1], '.training.lock'):
    print('held', flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds ``tmp_path``."""
    process = start_python('-c', HOLD, tmp_path, TRAIN.parent)
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
    process = start_python('-c', code, tmp_path, TRAIN.parent)
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
