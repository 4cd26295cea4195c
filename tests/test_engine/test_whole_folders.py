"""Checkpoint folders are whole or absent at every instruction."""

import json
import os
import pickle
import shutil
import subprocess
import tracemalloc

import pytest
import torch

from mmrank.checkpoint_loading import CheckpointError
from mmrank.engine.resume import checkpoint
from mmrank.engine.resume.checkpoint import (
    find_damage,
    find_last_whole_checkpoint,
    pointed_foreign_folder,
)
from mmrank.engine.resume.whole_checkpoint import (
    MANIFEST,
    _write_manifest,
    recover_folders,
    remove_checkpoint,
    whole_checkpoint,
)
from mmrank.engine.sharded.checkpoint import load_sharded, save_sharded
from mmrank.files import remove_temporary_files, temporary_name


def content(value):
    """A checkpoint whose tensors have this value."""
    return {
        'meta': {'epoch': value, 'cfg': 'a = 1\n'},
        'state_dict': {'w': torch.full((3, 4), float(value)), 'x.y': None},
        'optimizer': {
            'state': {0: {'step': torch.tensor(float(value))}},
            'param_groups': [{'lr': 0.1, 'betas': (0.9, 0.99)}],
        },
        'rng_state': {'torch': torch.get_rng_state()},
    }


def save(path, value):
    """Save a folder as a strategy and the runner do together."""
    with whole_checkpoint(path) as temp:
        save_sharded(content(value), temp)
    return path


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    """Collects the warnings of a search."""
    warned = []
    monkeypatch.setattr(checkpoint, '_warn', warned.append)
    return warned


def test_round_trip(tmp_path):
    path = save(tmp_path / 'epoch_1.pth', 5)
    assert find_damage(path) is None
    loaded, expected = load_sharded(path), content(5)
    assert loaded.keys() == expected.keys()
    for part in ('meta', 'rng_state'):
        assert str(loaded[part]) == str(expected[part])
    assert torch.equal(loaded['state_dict']['w'], torch.full((3, 4), 5.0))
    assert loaded['optimizer']['state'][0]['step'] == 5
    assert loaded['optimizer']['param_groups'] == [{'lr': 0.1, 'betas': (0.9, 0.99)}]
    assert 'optimizer' not in load_sharded(path, without=('optimizer',))


def crash_states(monkeypatch, tmp_path, work, action):
    """Copies of a folder as a kill before each step of an action leaves it."""
    found, copying = [], []

    def recorded(function):
        def step(*args, **kwargs):
            if not copying:
                copying.append(True)
                found.append(tmp_path / f'state_{len(found)}')
                shutil.copytree(work, found[-1])
                copying.clear()
            return function(*args, **kwargs)

        return step

    for name in ('fsync', 'replace', 'rename', 'unlink', 'rmdir', 'mkdir'):
        monkeypatch.setattr(os, name, recorded(getattr(os, name)))
    action()
    monkeypatch.undo()
    return found


def as_of_dead_process(folder):
    """Rename temporary files as if another process had died with them."""
    for path in folder.glob('.*.tmp'):
        name = path.name.replace(f'.{os.getpid()}@', '.4194999@')
        path.rename(path.with_name(name))


def test_whole_at_every_step(monkeypatch, tmp_path):
    work = tmp_path / 'work'
    work.mkdir()
    save(work / 'epoch_1.pth', 1)

    def actions():
        save(work / 'epoch_2.pth', 2)
        # A better best checkpoint makes mmengine save the last one again.
        save(work / 'epoch_2.pth', 3)
        remove_checkpoint(work / 'epoch_1.pth')

    states = crash_states(monkeypatch, tmp_path, work, actions)
    assert len(states) > 30
    values = []
    for state in states:
        as_of_dead_process(state)
        for path in state.glob('*.pth'):
            assert find_damage(path) is None, path
        found = find_last_whole_checkpoint(state)
        values.append(int(load_sharded(found)['state_dict']['w'][0, 0]))
        # The training that goes on names it and clears up.
        recover_folders(state)
        remove_temporary_files(state)
        assert not list(state.glob('.*'))
        found = find_last_whole_checkpoint(state)
        assert int(load_sharded(found)['state_dict']['w'][0, 0]) == values[-1]
    assert values == sorted(values)
    assert set(values) == {1, 2, 3}
    assert [x.name for x in work.iterdir()] == ['epoch_2.pth']


def test_error_leaves_nothing(tmp_path):
    save(tmp_path / 'epoch_1.pth', 1)

    def fill_the_disk():
        with whole_checkpoint(tmp_path / 'epoch_1.pth') as temp:
            save_sharded(content(2), temp)
            raise OSError('disk full')

    with pytest.raises(OSError, match='full'):
        fill_the_disk()
    assert [x.name for x in tmp_path.iterdir()] == ['epoch_1.pth']
    assert load_sharded(tmp_path / 'epoch_1.pth')['meta']['epoch'] == 1


def test_file_is_renamed_at_the_end(tmp_path):
    path = tmp_path / 'epoch_1.pth'
    with whole_checkpoint(path) as temp:
        torch.save(content(1), temp)
        assert not path.exists()
    assert find_damage(path) is None
    remove_checkpoint(path)
    assert not list(tmp_path.iterdir())


def edit_manifest(folder, change):
    """Change the parsed manifest."""
    text = json.loads((folder / MANIFEST).read_text())
    change(text)
    (folder / MANIFEST).write_text(json.dumps(text))


def outside(text):
    """Name a file of another folder."""
    text['files']['../epoch_2.pth/rest.pth'] = text['files']['rest.pth']


def flip(path):
    """Flip a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link(folder):
    """Put a link in place of a file."""
    (folder / 'rest.pth').rename(folder.parent / 'rest')
    (folder / 'rest.pth').symlink_to(folder.parent / 'rest')


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (lambda f: (f / MANIFEST).unlink(), 'without manifest.json'),
        (lambda f: flip(f / '__0_0.distcp'), '__0_0.distcp has another check'),
        (lambda f: flip(f / '.metadata'), 'metadata has another checksum'),
        (lambda f: os.truncate(f / 'rest.pth', 99), 'rest.pth has another si'),
        (lambda f: (f / 'rest.pth').unlink(), 'lacks its file rest.pth'),
        (link, 'lacks its file rest.pth'),
        (lambda f: (f / MANIFEST).write_text('{'), 'damaged manifest.json'),
        (lambda f: (f / MANIFEST).write_text('[' * 99999), 'damaged manifest'),
        (lambda f: (f / MANIFEST).write_text('[1]'), 'no list of files'),
        (lambda f: edit_manifest(f, outside), 'not a file of the folder'),
        (lambda f: edit_manifest(f, lambda t: t['files'].update(a=3)), 'no size and checksum'),
    ],
)
def test_damaged_folder_is_passed_over(tmp_path, silent, damage, message):
    save(tmp_path / 'epoch_1.pth', 1)
    last = save(tmp_path / 'epoch_2.pth', 2)
    (tmp_path / 'last_checkpoint').write_text(str(last))
    assert find_last_whole_checkpoint(tmp_path) == str(last)
    damage(last)
    assert message in find_damage(last)
    before = find_last_whole_checkpoint(tmp_path)
    assert before == str(tmp_path / 'epoch_1.pth')
    assert f'{last} is passed over: it ' in silent[0]


def test_folder_of_a_foreign_strategy(tmp_path):
    own = save(tmp_path / 'epoch_1.pth', 1)
    foreign = tmp_path / 'epoch_2.pth'
    foreign.mkdir()
    pointer = tmp_path / 'last_checkpoint'
    pointer.write_text(str(own))
    assert pointed_foreign_folder(tmp_path) is None
    pointer.write_text(str(foreign))
    assert pointed_foreign_folder(tmp_path) == foreign
    with pytest.raises(CheckpointError, match='nothing of mmrank wrote it'):
        load_sharded(foreign)


def test_folders_of_living_processes_stay(tmp_path):
    living = subprocess.Popen(['sleep', '60'])
    try:
        temp = temporary_name(tmp_path / 'epoch_1.pth')
        other = temp.with_name(temp.name.replace(f'.{os.getpid()}@', f'.{living.pid}@'))
        with whole_checkpoint(tmp_path / 'x') as path:
            save_sharded(content(1), path)
        (tmp_path / 'x').rename(other)
        assert find_last_whole_checkpoint(tmp_path) is None
        assert recover_folders(tmp_path) == []
        remove_temporary_files(tmp_path)
        assert other.exists()
    finally:
        living.kill()
        living.wait()
    assert find_last_whole_checkpoint(tmp_path) == str(other)
    assert recover_folders(tmp_path) == ['epoch_1.pth']


def sign(folder):
    """State that a folder is whole as it is now."""
    (folder / MANIFEST).unlink()
    _write_manifest(folder)


def test_parts_of_two_trainings_are_refused(tmp_path):
    folder = save(tmp_path / 'epoch_1.pth', 1)
    shutil.copy(save(tmp_path / 'epoch_2.pth', 2) / '__0_0.distcp', folder)
    with pytest.raises(CheckpointError, match=r'__0_0\.distcp has another checksum'):
        load_sharded(folder)


class Hostile:
    """A pickle that runs a command when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def without_a_part(folder):
    found = pickle.loads((folder / '.metadata').read_bytes())
    found.state_dict_metadata['state_dict/w'].chunks[0].sizes = torch.Size([2, 4])
    (folder / '.metadata').write_bytes(pickle.dumps(found))


def metadata_that_calls(folder):
    (folder / '.metadata').write_bytes(pickle.dumps(Hostile(folder.parent / 'run')))


def rest_that_calls(folder):
    torch.save({'meta': Hostile(folder.parent / 'run')}, folder / 'rest.pth')


def names_another_folder(folder):
    text = (folder / '.metadata').read_bytes()
    name = pickle.dumps('__0_0.distcp', 4)[11:-2]
    assert name in text
    other = pickle.dumps('../0_.distcp', 4)[11:-2]
    (folder / '.metadata').write_bytes(text.replace(name, other))


def rest_of_another_kind(folder):
    torch.save({'meta': {}}, folder / 'rest.pth')


@pytest.mark.parametrize(
    ('forge', 'message'),
    [
        (without_a_part, 'lacks tensor state_dict/w, or a part of it'),
        (metadata_that_calls, 'it calls posix.mkdir'),
        (rest_that_calls, 'posix.mkdir'),
        (names_another_folder, 'a file of another folder'),
        (rest_of_another_kind, 'where its tensors belong'),
    ],
)
def test_a_forged_folder_is_refused_and_runs_nothing(tmp_path, forge, message):
    folder = save(tmp_path / 'epoch_1.pth', 1)
    forge(folder)
    sign(folder)
    with pytest.raises(CheckpointError, match=message):
        load_sharded(folder)
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('name', ['Metadata', 'TensorProperties', '_MEM_FORMAT_ENCODING'])
def test_metadata_alters_no_class(tmp_path, name):
    folder = save(tmp_path / 'epoch_1.pth', 1)
    kind = getattr(torch.distributed.checkpoint.metadata, name)
    # BUILD with a state of slots: setattr(kind, 'altered', 1).
    text = b'c%b\n%b\nN}U\x07alteredK\x01s\x86b.' % (kind.__module__.encode(), name.encode())
    (folder / '.metadata').write_bytes(b'\x80\x02' + text)
    sign(folder)
    with pytest.raises(CheckpointError, match='it changes <'):
        load_sharded(folder)
    assert not hasattr(kind, 'altered')


def test_metadata_claims_no_memory(tmp_path):
    folder = save(tmp_path / 'epoch_1.pth', 1)
    # 20 bytes that say: here are 2^28 more.
    (folder / '.metadata').write_bytes(b'\x80\x05\x96' + (2**28).to_bytes(8, 'little') + b'a.')
    sign(folder)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match='damaged or holds more than data'):
            load_sharded(folder)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
