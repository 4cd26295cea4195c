"""Torn checkpoints are recognised and passed over."""

import os
import subprocess

import pytest
import torch

from mmrank import files
from mmrank.engine.resume import checkpoint
from mmrank.engine.resume.checkpoint import find_damage, find_last_whole_checkpoint
from mmrank.files import remove_temporary_files, write_atomically


def save(path, value=0, zip_format=True):
    """Write a checkpoint large enough to be torn in several places."""
    torch.save(
        {'meta': {'epoch': value}, 'state_dict': {'w': torch.randn(2000)}},
        path,
        _use_new_zipfile_serialization=zip_format,
    )
    return path


def point(folder, target):
    """Write the pointer file of mmengine."""
    (folder / 'last_checkpoint').write_text(str(target))


def set_age(path, seconds):
    """Make a file look ``seconds`` old."""
    now = path.stat().st_mtime - seconds
    os.utime(path, (now, now))


def test_whole_checkpoint(tmp_path):
    assert find_damage(save(tmp_path / 'epoch_1.pth')) is None


def test_older_format_is_not_judged(tmp_path):
    path = save(tmp_path / 'epoch_1.pth', zip_format=False)
    assert 'cannot be judged' in find_damage(path)


@pytest.mark.parametrize('zip_format', [True, False], ids=['zip', 'legacy'])
@pytest.mark.parametrize('part', [0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_truncated_checkpoint_is_not_whole(tmp_path, zip_format, part):
    path = save(tmp_path / 'epoch_1.pth', zip_format=zip_format)
    os.truncate(path, int(path.stat().st_size * part))
    assert find_damage(path) is not None


def test_flipped_bit_is_found(tmp_path):
    path = save(tmp_path / 'epoch_1.pth')
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert find_damage(path) is not None


def test_other_files_are_not_whole(tmp_path):
    assert find_damage(tmp_path / 'absent.pth') is not None
    assert find_damage(tmp_path) is not None
    (tmp_path / 'text.pth').write_text('not a checkpoint')
    assert find_damage(tmp_path / 'text.pth') is not None


@pytest.mark.parametrize('part', [0.0, 0.3, 0.999])
def test_torn_newest_is_skipped_with_its_name(tmp_path, monkeypatch, part):
    warnings = []
    monkeypatch.setattr(checkpoint, '_warn', warnings.append)
    for epoch in (1, 2, 10):
        save(tmp_path / f'epoch_{epoch}.pth', epoch)
    newest = tmp_path / 'epoch_10.pth'
    point(tmp_path, newest)
    os.truncate(newest, int(newest.stat().st_size * part))
    found = find_last_whole_checkpoint(tmp_path)
    assert found == str(tmp_path / 'epoch_2.pth')
    assert len(warnings) == 1
    assert str(newest) in warnings[0]


def test_newest_is_by_number_not_by_text(tmp_path):
    for iteration in (900, 1000):
        save(tmp_path / f'iter_{iteration}.pth')
    assert find_last_whole_checkpoint(tmp_path).endswith('iter_1000.pth')


def test_checkpoint_written_after_its_pointer_counts(tmp_path):
    save(tmp_path / 'epoch_1.pth')
    point(tmp_path, tmp_path / 'epoch_1.pth')
    set_age(tmp_path / 'last_checkpoint', 10)
    save(tmp_path / 'epoch_2.pth')
    assert find_last_whole_checkpoint(tmp_path).endswith('epoch_2.pth')


def test_checkpoint_of_an_older_training_does_not(tmp_path):
    save(tmp_path / 'epoch_12.pth')
    set_age(tmp_path / 'epoch_12.pth', 1000)
    save(tmp_path / 'epoch_3.pth')
    point(tmp_path, tmp_path / 'epoch_3.pth')
    assert find_last_whole_checkpoint(tmp_path).endswith('epoch_3.pth')


def test_best_published_and_temporary_files_are_ignored(tmp_path):
    save(tmp_path / 'best_acc_epoch_9.pth')
    save(tmp_path / 'epoch_1-12345678.pth')
    save(tmp_path / '.epoch_9.pth.123.tmp')
    assert find_last_whole_checkpoint(tmp_path) is None
    save(tmp_path / 'epoch_1.pth')
    assert find_last_whole_checkpoint(tmp_path).endswith('epoch_1.pth')


def test_pointer_into_another_folder_and_moved_folder(tmp_path):
    work_dir, other = tmp_path / 'work', tmp_path / 'other'
    work_dir.mkdir()
    other.mkdir()
    save(other / 'epoch_4.pth')
    point(work_dir, other / 'epoch_4.pth')
    assert find_last_whole_checkpoint(work_dir) == str(other / 'epoch_4.pth')
    save(work_dir / 'epoch_4.pth')
    point(work_dir, tmp_path / 'gone' / 'epoch_4.pth')
    found = find_last_whole_checkpoint(work_dir)
    assert found == str(work_dir / 'epoch_4.pth')


@pytest.mark.parametrize('content', [b'', b'\x00' * 40])
def test_torn_pointer(tmp_path, content):
    save(tmp_path / 'epoch_4.pth')
    (tmp_path / 'last_checkpoint').write_bytes(content)
    assert find_last_whole_checkpoint(tmp_path).endswith('epoch_4.pth')


def test_empty_folder(tmp_path):
    assert find_last_whole_checkpoint(tmp_path) is None
    assert find_last_whole_checkpoint(tmp_path / 'absent') is None


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
    old, host = f'.epoch_1.pth.{dead.pid}', files._host()
    removed = [f'{old}@{host}.tmp']
    kept = [
        f'.epoch_1.pth.{os.getppid()}@{host}.tmp',  # its writer lives
        f'.epoch_2.pth.{dead.pid}@away-1.tmp',  # it may
        '.notes.tmp',
        'data.tmp',
    ]
    for name in removed + kept:
        (tmp_path / name).touch()
    remove_temporary_files(tmp_path)
    assert {item.name for item in tmp_path.iterdir()} == set(kept)
