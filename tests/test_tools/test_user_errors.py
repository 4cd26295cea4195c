"""A tool shows what the user can fix in one message."""

from pathlib import Path

import pytest

from mmrank.errors import UserError, show_user_errors

TEST = Path(__file__).parents[2] / 'tools' / 'test.py'


def test_the_users_error_is_one_message_and_a_bug_is_a_traceback(capsys):
    @show_user_errors(OSError, on_interrupt='Run it again.')
    def main(error=None):
        if error is not None:
            raise error

    assert main() == 0
    assert main(UserError('lr is -1. Fix: set lr > 0')) == 2
    assert capsys.readouterr().err == 'error: lr is -1. Fix: set lr > 0\n'
    assert main(FileNotFoundError(2, 'No such file', 'a.json')) == 2
    assert 'a.json' in capsys.readouterr().err
    assert main(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == '\nRun it again.\n'
    assert main(KeyError('tau is 0. Fix: tau > 0')) == 2
    assert capsys.readouterr().err == 'error: tau is 0. Fix: tau > 0\n'
    worker = 'Caught OSError in worker 0.\nTraceback\nx.y.OSError: a.jpg is torn. Fix: copy it\n'
    assert main(RuntimeError(worker)) == 2
    assert capsys.readouterr().err == 'error: a.jpg is torn. Fix: copy it\n'
    with pytest.raises(ValueError, match='a bug'):
        main(ValueError('a bug'))


def test_the_status_of_the_tool_itself_stays():
    assert show_user_errors()(lambda: 1)() == 1


@pytest.mark.parametrize('name', ['folder.pkl', 'file/a.pkl'])
def test_a_file_that_cannot_be_written_is_found_before_the_test(tmp_path, run_script, name):
    (tmp_path / 'folder.pkl').mkdir()
    (tmp_path / 'file').touch()
    status, _, errors = run_script(TEST, 'no.py', 'no.pth', '--out', tmp_path / name)
    assert status == 2
    assert f'{tmp_path / name} cannot be written' in errors
    assert sorted(x.name for x in tmp_path.iterdir()) == ['file', 'folder.pkl']
