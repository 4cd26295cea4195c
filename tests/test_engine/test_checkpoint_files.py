"""Torn checkpoints are recognised and passed over; test_damaged_checkpoints.py damages more."""

import os
import subprocess

import pytest
import torch

from mmrank import files
from mmrank.engine.resume import checkpoint
from mmrank.engine.resume.checkpoint import _find_damage, find_last_whole_checkpoint
from mmrank.files import remove_temporary_files, write_atomically


def save(path, zip_format=True):
    """Write a checkpoint large enough to be torn in several places."""
    content = {'meta': {'epoch': 1}, 'state_dict': {'w': torch.randn(2000)}}
    torch.save(content, path, _use_new_zipfile_serialization=zip_format)
    return path


@pytest.fixture
def folder(tmp_path):
    """A function that writes checkpoints by name and the pointer file of mmengine to the last."""

    def make(*names, pointer=True):
        paths = [save(tmp_path / name) for name in names]
        if pointer:
            (tmp_path / 'last_checkpoint').write_text(str(paths[-1]))
        return paths

    return make


def set_age(path, seconds):
    """Make a file look ``seconds`` old."""
    now = path.stat().st_mtime - seconds
    os.utime(path, (now, now))


@pytest.mark.parametrize('zip_format', [True, False], ids=['zip', 'legacy'])
@pytest.mark.parametrize('part', [0.0, 0.001, 0.5, 0.99, 0.9999, 1.0])
def test_only_a_complete_file_of_the_zip_format_is_whole(tmp_path, zip_format, part):
    path = save(tmp_path / 'epoch_1.pth', zip_format=zip_format)
    os.truncate(path, int(path.stat().st_size * part))
    assert (_find_damage(path) is None) is (zip_format and part == 1)


def test_torn_newest_are_skipped_with_one_warning(tmp_path, folder, monkeypatch):
    warnings = []
    monkeypatch.setattr(checkpoint, 'print_log', lambda text, **_: warnings.append(text))
    *_, before, newest = folder('epoch_1.pth', 'epoch_2.pth', 'epoch_9.pth', 'epoch_10.pth')
    os.truncate(newest, 700)
    os.truncate(before, 0)
    assert find_last_whole_checkpoint(tmp_path) == str(tmp_path / 'epoch_2.pth')
    (warning,) = warnings
    assert warning.index(f'- {newest} is damaged') < warning.index(f'- {before} is damaged')


def test_checkpoint_written_after_its_pointer_counts(tmp_path, folder):
    folder('epoch_1.pth')
    set_age(tmp_path / 'last_checkpoint', 10)
    folder('epoch_2.pth', pointer=False)
    assert find_last_whole_checkpoint(tmp_path).endswith('epoch_2.pth')


def test_checkpoint_of_an_older_training_does_not(tmp_path, folder):
    set_age(*folder('epoch_12.pth', pointer=False), 1000)
    folder('epoch_3.pth')
    assert find_last_whole_checkpoint(tmp_path).endswith('epoch_3.pth')


def test_best_and_temporary_files_are_ignored(tmp_path, folder):
    folder('best_acc_epoch_9.pth', '.epoch_9.pth.123.tmp', pointer=False)
    assert find_last_whole_checkpoint(tmp_path) is None
    assert find_last_whole_checkpoint(tmp_path / 'absent') is None


def test_names_of_another_kind_come_last(tmp_path, folder):
    folder('epoch_1.pth', 'iter_900.pth', 'iter_1000.pth')
    for name, left in (('iter_1000.pth', 'iter_900.pth'), ('iter_900.pth', 'epoch_1.pth')):
        os.truncate(tmp_path / name, 100)
        assert find_last_whole_checkpoint(tmp_path) == str(tmp_path / left)


def test_pointer_into_another_folder_and_moved_folder(tmp_path):
    work_dir = tmp_path / 'work'
    other = tmp_path / 'other'
    for place in (work_dir, other):
        place.mkdir()
    save(other / 'epoch_4.pth')
    (work_dir / 'last_checkpoint').write_text(str(other / 'epoch_4.pth'))
    assert find_last_whole_checkpoint(work_dir) == str(other / 'epoch_4.pth')
    save(work_dir / 'epoch_4.pth')
    (work_dir / 'last_checkpoint').write_text(str(tmp_path / 'gone' / 'epoch_4.pth'))
    assert find_last_whole_checkpoint(work_dir) == str(work_dir / 'epoch_4.pth')


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / 'file'
    write_atomically(b'old', path)

    def fail(descriptor):
        raise OSError('No space left on device')

    monkeypatch.setattr(os, 'fsync', fail)
    with pytest.raises(OSError, match='No space left'):
        write_atomically(b'new', path)
    assert path.read_bytes() == b'old'
    assert [item.name for item in tmp_path.iterdir()] == ['file']


def test_only_own_temporary_files_are_removed(tmp_path):
    with subprocess.Popen(['true']) as dead:
        pass
    host = files._host()
    kept = [
        f'.epoch_1.pth.{os.getppid()}@{host}.tmp',  # its writer lives
        f'.epoch_2.pth.{dead.pid}@away-1.tmp',  # it may
        '.notes.tmp',
        'data.tmp',
    ]
    for name in (f'.epoch_1.pth.{dead.pid}@{host}.tmp', *kept):
        (tmp_path / name).touch()
    remove_temporary_files(tmp_path)
    assert {item.name for item in tmp_path.iterdir()} == set(kept)
