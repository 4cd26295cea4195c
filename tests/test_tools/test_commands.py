"""The command ``mmrank``: what it lists, the help of each command, mistakes in their names."""

import os
import re
import sys

import pytest

from mmrank.apis import cli

GROUPS = ('', 'check', 'draw')


@pytest.fixture
def mmrank(monkeypatch, capsys):
    """Runs ``mmrank`` with some words in this process: status, output and errors."""

    def run(*words):
        monkeypatch.setattr(sys, 'argv', ['mmrank', *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, *capsys.readouterr()

    monkeypatch.delenv('GOMP_SPINCOUNT', raising=False)
    yield run
    cli.interruption.restore_signals()


@pytest.mark.parametrize('group', GROUPS)
def test_a_group_lists_its_commands(mmrank, group):
    status, output, _ = mmrank(*group.split(), '--help')
    assert status == 0
    listed = re.findall('^  ([a-z -]+?)  ', output, re.MULTILINE)
    names = [name for name in cli.COMMANDS if name.startswith(group)]
    assert listed == [name.removeprefix(group).strip() for name in names]
    assert mmrank(*group.split())[0] == 2


@pytest.mark.parametrize('name', cli.COMMANDS)
def test_each_command_has_help(mmrank, name):
    status, output, _ = mmrank(*name.split(), '--help')
    assert status == 0
    assert output.startswith(f'usage: mmrank {name} ')
    # Threads that wait spin for a moment only.
    assert os.environ['GOMP_SPINCOUNT'] == '3000'


@pytest.mark.parametrize(
    ('words', 'fix'),
    [
        ('trian mine.py', 'Fix: mmrank train'),
        ('draw detection', 'Fix: mmrank draw detections'),
        ('check boxes', 'Fix: mmrank check --help'),
    ],
)
def test_a_mistyped_command_is_one_message(mmrank, words, fix):
    status, _, errors = mmrank(*words.split())
    assert status == 2
    assert fix in errors
