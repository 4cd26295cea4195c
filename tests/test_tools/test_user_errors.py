"""A tool shows what the user can fix in one message."""

import errno
from pathlib import Path

import pytest

from mmrank.apis.common.command_errors import _config_error
from mmrank.errors import UserError, UserKeyError, machine_fault, show_user_errors
from mmrank.files import replace_atomically, whole_folder

TEST = Path(__file__).parents[2] / 'tools' / 'test.py'


def test_the_users_error_is_one_message_and_a_bug_is_a_traceback(capsys):
    @show_user_errors(OSError, on_interrupt='Run it again.')
    def main(error=None):
        if error is not None:
            raise error

    assert main() == 0
    assert show_user_errors()(lambda: 1)() == 1  # the tool's own status
    assert main(UserError('lr is -1. Fix: set lr > 0')) == 2
    assert capsys.readouterr().err == 'error: lr is -1. Fix: set lr > 0\n'
    assert main(FileNotFoundError(2, 'No such file', 'a.json')) == 2
    said = capsys.readouterr().err
    assert 'a.json' in said
    assert f'relative ones start at {Path.cwd()}' in said
    assert main(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == '\nRun it again.\n'
    assert main(UserKeyError('tau is 0', fix='tau > 0')) == 2
    assert capsys.readouterr().err == 'error: tau is 0. Fix: tau > 0\n'
    worker = 'Caught UserError in worker 0.\nTraceback\nUserError: a.jpg is torn. Fix: copy it\n'
    assert main(UserError(worker)) == 2
    assert capsys.readouterr().err == 'error: a.jpg is torn. Fix: copy it\n'
    with pytest.raises(ValueError, match='a bug'):
        main(ValueError('a bug. Fix: none, this is no error of the user'))


MACHINE = [
    (PermissionError(errno.EACCES, 'Denied', 'a/b.json'), 'Denied: a/b.json', 'yours'),
    (OSError(errno.EROFS, 'Read-only', 'b.pkl'), 'Read-only: b.pkl', 'yours'),
    (OSError(errno.EMFILE, 'Many'), 'Many', 'num_workers'),
    (OSError(errno.EADDRINUSE, 'In use'), 'In use', 'MASTER_PORT=29511'),
    (RuntimeError('port: 29500, name: EADDRINUSE, more'), 'port: 29500', 'MASTER_PORT=29511'),
    (MemoryError('of 9 GB'), 'MemoryError: of 9 GB', 'batch_size'),
    (RuntimeError('DataLoader worker (pid 7) is killed by signal: Bus'), 'pid 7', '--shm-size'),
    (RuntimeError('[x] PytorchStreamWriter failed writing file data/0'), 'data/0', 'disk space'),
]


@pytest.mark.parametrize(('error', 'words', 'fix'), MACHINE)
def test_what_the_machine_refuses_is_no_error_of_a_config(error, words, fix, capsys):
    @show_user_errors()
    def main():
        raise error

    assert main() == 2
    text = capsys.readouterr().err
    assert words in text
    assert fix in text.partition('\n  Fix: ')[2]
    assert _config_error(error) is error
    assert machine_fault(KeyError('lr')) is None


@pytest.mark.parametrize('maker', [replace_atomically, whole_folder])
def test_a_full_disk_names_the_file(tmp_path, capsys, maker):
    def write(path):
        with maker(path):
            raise OSError(errno.ENOSPC, 'No space left on device')

    assert show_user_errors()(lambda: write(tmp_path / 'a.json'))() == 2
    assert f'No space left on device: {tmp_path / "a.json"}\n  Fix: free' in capsys.readouterr().err


def test_a_link_is_not_followed(tmp_path):
    from mmrank.visualization.figures import new_panels, save

    (tmp_path / 'precious.txt').write_text('mine')
    (tmp_path / 'boxplot.png').symlink_to(tmp_path / 'precious.txt')
    save(new_panels(1, 1)[0], tmp_path / 'boxplot.png')
    assert (tmp_path / 'precious.txt').read_text() == 'mine'
    assert (tmp_path / 'boxplot.png').read_bytes().startswith(b'\x89PNG')


def test_files_that_are_moved_in_spare_the_sources(tmp_path):
    source = tmp_path / 'out' / 'train.csv'
    source.parent.mkdir()
    source.write_text('mine')
    source.with_name('link.csv').hardlink_to(source)

    def write(name):
        with whole_folder(tmp_path / 'out', source) as folder:
            (folder / 'first.csv').write_text('new')
            (folder / name).write_text('new')

    for name in ('train.csv', 'link.csv'):
        with pytest.raises(UserError, match='is the source'):
            write(name)
    assert source.read_text() == 'mine'
    assert not (tmp_path / 'out' / 'first.csv').exists()


@pytest.mark.parametrize('name', ['folder.pkl', 'file/a.pkl'])
def test_a_file_that_cannot_be_written_is_found_before_the_test(tmp_path, run_script, name):
    (tmp_path / 'folder.pkl').mkdir()
    (tmp_path / 'file').touch()
    status, _, errors = run_script(TEST, 'no.py', 'no.pth', '--out', tmp_path / name)
    assert status == 2
    assert f'{tmp_path / name} cannot be written' in errors
    assert sorted(x.name for x in tmp_path.iterdir()) == ['file', 'folder.pkl']
