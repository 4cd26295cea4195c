"""What every command says: help, unknown options, missing files; one message of a user's error."""

import errno
import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest
from docs_blocks import ROOT

from mmrank import files
from mmrank.cli import doctor
from mmrank.cli import main as cli
from mmrank.engine.resume.checkpoint import _AtomicLocalBackend
from mmrank.errors import UserError, UserKeyError, machine_fault, show_user_errors
from mmrank.experiments.records import write_rows
from mmrank.files import replace_atomically, whole_folder
from mmrank.runners.config_errors import config_error

GROUPS = ('', 'check', 'draw')
#: Tools that are no command.
TOOLS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / 'tools').rglob('*.py'))
    if "__name__ == '__main__'" in (text := path.read_text('utf-8'))
    and 'tests' not in path.parts
    and 'cli.main' not in text
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


def test_doctor_prints_json_and_works_without_openmmlab(mmrank, monkeypatch):
    packages = {'numpy': ('arrays', ''), 'no_such_package': ('configs', 'pip install it')}
    monkeypatch.setattr(doctor, 'PACKAGES', packages)
    monkeypatch.setattr(doctor, 'CORE', set(packages))
    status, output, _ = mmrank('doctor', '--json')
    states = {row['part']: row['state'] for row in json.loads(output)}
    assert (status, states['numpy'], states['no_such_package']) == (0, 'ok', 'absent')


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
compare absent.py --seeds many
compare absent.py --epochs 0
check retrieval absent.py
draw detections absent.json . absent.json
draw detections absent.json . absent.json --at f2
draw pr-curves absent.json a=absent.json
draw froc absent.json absent.json --at recall@p90
draw froc absent.json absent.json --figures recall recall@fp
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


@pytest.mark.parametrize(
    ('line', 'option'),
    [
        ('check coco --config absent.py --fix absent.json', '--fix'),
        ('check retrieval absent.py --depth 2', '--depth'),
        ('draw retrieval made.npz --split val', '--split'),
        ('draw embeddings made.npz --cfg-options a=1', '--cfg-options'),
        ('draw seeds absent.csv --mark 0.5', '--mark'),
        ('draw seeds absent.csv --setting rate --forest ours', '--setting'),
    ],
)
def test_an_option_without_effect_is_refused(line, option, mmrank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'made.npz').touch()
    status, _, errors = mmrank(*line.split())
    assert status == 2
    assert option in errors.partition('error: ')[2]


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
    assert config_error(error, 'cannot be built') is error
    assert machine_fault(KeyError('lr')) is None


@pytest.mark.parametrize('maker', [replace_atomically, whole_folder])
def test_a_full_disk_names_the_file(tmp_path, capsys, maker):
    def write(path):
        with maker(path):
            raise OSError(errno.ENOSPC, 'No space left on device')

    assert show_user_errors()(lambda: write(tmp_path / 'a.json'))() == 2
    assert f'No space left on device: {tmp_path / "a.json"}\n  Fix: free' in capsys.readouterr().err


def write_picture(path):
    from mmrank.pictures.figures import new_panels, save

    save(new_panels(1, 1)[0], path)


def write_folder(path):
    with files.whole_folder(path.parent) as folder:
        (folder / path.name).write_text('new')


#: All doors by which a file is written.
WRITERS = {
    'whole': lambda path: files.write_atomically(b'new', path),
    'table': lambda path: files.write_csv_atomically([['new']], path),
    'in a folder': write_folder,
    'checked': files.check_output,
    'in place': files.refuse_link,
    'picture': write_picture,
    'record': lambda path: write_rows(path, [dict(method='a')], ('method',)),
    'checkpoint': lambda path: _AtomicLocalBackend().put(b'new', path),
}


def as_device(path, precious):
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip('takes root')


#: What may be there.
PLACES = {
    'link': lambda path, precious: path.symlink_to(precious),
    'link to nothing': lambda path, precious: path.symlink_to('nowhere'),
    'folder': lambda path, precious: path.mkdir(),
    'pipe': lambda path, precious: os.mkfifo(path),
    'device': as_device,
}


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('writer', WRITERS)
def test_a_writer_refuses_what_is_no_file(tmp_path, writer, place):
    precious = tmp_path / 'precious'
    precious.write_text('mine')
    path = tmp_path / 'out' / 'runs.csv'
    path.parent.mkdir()
    PLACES[place](path, precious)
    before = os.lstat(path)
    words = 'cannot be written: it is a link, a folder or a device. Fix: '
    with pytest.raises(UserError, match=words):
        WRITERS[writer](path)
    assert (os.lstat(path).st_ino, os.lstat(path).st_mode) == (before.st_ino, before.st_mode)
    assert precious.read_text() == 'mine'
    assert os.listdir(path.parent) == ['runs.csv']


@pytest.mark.parametrize('name', ['a\0b.png', 'x' * 252 + '.png', 'x' * 300])
@pytest.mark.parametrize('writer', ['whole', 'checked', 'picture', 'checkpoint'])
def test_a_name_that_no_file_can_have_is_one_message(tmp_path, writer, name):
    @show_user_errors(OSError)
    def write():
        WRITERS[writer](tmp_path / name)

    assert write() == 2
    assert not os.listdir(tmp_path)


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
