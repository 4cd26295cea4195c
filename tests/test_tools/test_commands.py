"""What every command and tool says: its help, unknown options, missing files, mistyped names."""

import os
import re
import sys

import pytest
from docs_blocks import ROOT

from mmrank.apis import cli

GROUPS = ('', 'check', 'draw')
#: Tools that are no command.
TOOLS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / 'tools').rglob('*.py'))
    if "__name__ == '__main__'" in (text := path.read_text('utf-8'))
    and 'tests' not in path.parts
    and 'apis.cli' not in text
]


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


@pytest.fixture(params=[*cli.COMMANDS, *TOOLS])
def call(request, mmrank, run_script, monkeypatch):
    """Runs a command or a tool with some words; its name is ``call.name``."""
    if request.param in TOOLS:
        path = ROOT / request.param
        monkeypatch.syspath_prepend(path.parent)

    def run(*words):
        if request.param in TOOLS:
            return run_script(path, *words)
        return mmrank(*request.param.split(), *words)

    run.name = request.param
    return run


def test_help(call):
    status, output, errors = call('--help')
    assert status == 0, errors
    if call.name in TOOLS:
        assert 'usage: ' in output
        return
    assert output.startswith(f'usage: mmrank {call.name} ')
    assert f'mmrank {call.name}' in output.partition('\n\n')[2]  # an example
    # mim passes --gpus on to tools whose help names it.
    assert '--gpus' not in output
    # Threads that wait spin for a moment only.
    assert os.environ['GOMP_SPINCOUNT'] == '3000'


def test_an_unknown_option_is_one_message(call):
    status, _, errors = call('--no-such-option')
    assert status == 2
    assert 'Traceback' not in errors
    assert 'error: ' in errors
    assert '--no-such-option' in errors or 'required' in errors


@pytest.mark.parametrize('group', GROUPS)
def test_a_group_lists_its_commands(mmrank, group):
    status, output, _ = mmrank(*group.split(), '--help')
    assert status == 0
    listed = re.findall('^  ([a-z -]+?)  ', output, re.MULTILINE)
    names = [name for name in cli.COMMANDS if name.startswith(group)]
    assert listed == [name.removeprefix(group).strip() for name in names]
    assert mmrank(*group.split())[0] == 2


#: A command with files that are not there, or values of another type.
WRONG = """
test absent.py absent.pth
test absent.py absent.pth --local_rank one
new-config --coco absent --out a.py --epochs two
compare absent.py
compare absent.py --budget 20
compare absent.py --images many
check retrieval absent.py
draw detections absent.json . absent.json
draw pr-curves absent.json a=absent.json
draw retrieval absent.py,absent.pth
draw embeddings absent.py,absent.pth
draw seeds absent.csv
draw training absent
"""


@pytest.mark.parametrize('line', WRONG.strip().splitlines())
def test_what_is_missing_or_of_another_type_is_one_message(line, mmrank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, errors = mmrank(*line.split())
    assert status in (1, 2)  # 1: a check that found something
    assert errors.count('error: ') == 1, errors
    assert 'Traceback' not in errors
    word = line.split()[-1] if 'absent' not in line.split()[-1] else 'absent'
    assert word in errors or 'absent' in errors
    assert not [x for x in tmp_path.rglob('*') if x.is_file() and not x.name.startswith('.')]


def test_each_tool_of_a_command_is_three_lines():
    """OpenMMLab's users know them; the code is importable."""
    texts = [path.read_text('utf-8') for path in (ROOT / 'tools').rglob('*.py')]
    named = [
        x for text in texts for x in re.findall(r"^    run\('([\w -]+)'\)$", text, re.MULTILINE)
    ]
    assert sorted(named) == sorted(cli.COMMANDS)


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
