"""The bootstrap's parts; its whole run is what `make test` itself does."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / 'tools'
sys.path.insert(0, str(TOOLS))

# The bootstrap is a script, not a part of the package: found by its folder.
import bootstrap  # noqa: E402
from bootstrap_parts import (  # noqa: E402
    checks,
    progress,
    steps,
    wheel_cache,
)

sys.path.remove(str(TOOLS))

Usage = namedtuple('Usage', 'total used free')
GB = 1024**3
FACTS = {
    'torch': '2.12.0+cu130',
    'torch_cuda': '13.0',
    'python': 'cp311',
    'platform': 'linux-x86_64',
    'archs': [],
}


# The Python that makes the environment.


def test_supported_python_is_taken_as_it_is(monkeypatch):
    monkeypatch.setattr(checks, 'probe_python', lambda path: (3, 12))
    assert checks.find_python() == sys.executable
    assert checks.find_python('/x/python') == '/x/python'


def test_other_python_looks_for_one_that_starts(monkeypatch):
    # A shim of a version manager is on PATH without the version behind it.
    works = {sys.executable: (3, 9), '/b/python3.12': (3, 12)}
    on_path = {
        'python3.11': '/shim/python3.11',
        'python3.12': '/b/python3.12',
        'python3.10': '/c/python3.10',
    }
    monkeypatch.setattr(checks, 'probe_python', works.get)
    monkeypatch.setattr(checks.shutil, 'which', on_path.get)
    assert checks.find_python() == '/b/python3.12'


@pytest.mark.parametrize('asked', [None, '/x/python3.9'])
def test_wrong_python_says_what_to_do(monkeypatch, asked):
    monkeypatch.setattr(checks, 'probe_python', lambda path: (3, 9))
    monkeypatch.setattr(checks.shutil, 'which', lambda name: None)
    with pytest.raises(checks.SetupError) as caught:
        checks.find_python(asked)
    for part in ('3.10', 'venv and ensurepip', 'make env PYTHON='):
        assert part in str(caught.value)
    assert (asked or sys.executable) in str(caught.value)


def test_supported_versions_agree():
    text = (ROOT / 'setup.py').read_text(encoding='utf-8')
    for version in checks.SUPPORTED:
        dotted = checks.dotted(version)
        assert dotted in checks.SUPPORTED_TEXT
        assert f'Python :: {dotted}' in text


# Disk, folders and compiler.


def test_too_little_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(checks.shutil, 'disk_usage', lambda path: Usage(9, 2, 7.5 * GB))
    place = tmp_path / 'a' / 'b'
    checks.check_folder(place, 7, 'cache of uv', 'XDG_CACHE_HOME=PATH')
    with pytest.raises(checks.SetupError, match='needs 8 GB') as info:
        checks.check_folder(place, 8, 'cache of uv', 'XDG_CACHE_HOME=PATH')
    assert '7.5 GB are free' in str(info.value)
    assert str(place) in str(info.value)
    assert 'XDG_CACHE_HOME' in str(info.value)
    assert not place.parent.exists()


def test_read_only_folder(monkeypatch, tmp_path):
    def refuse(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), dir)

    monkeypatch.setattr(checks.tempfile, 'TemporaryFile', refuse)
    with pytest.raises(checks.SetupError, match='Read-only') as info:
        checks.check_folder(tmp_path, 1, 'environment', '--venv PATH')
    assert f'environment, {tmp_path}' in str(info.value)
    assert '--venv PATH' in str(info.value)


def test_no_compiler_says_how_to_get_one(monkeypatch):
    monkeypatch.setenv('CXX', '/nowhere/g++')
    with pytest.raises(checks.SetupError, match='/nowhere/g') as info:
        checks.check_compiler(sys.executable)
    assert 'apt-get install g++' in str(info.value)
    assert '--find-links' in str(info.value)


def test_missing_headers(monkeypatch, tmp_path):
    if shutil.which('g++') is None:
        pytest.skip('no g++ here')
    monkeypatch.delenv('CXX', raising=False)
    monkeypatch.setattr(checks, 'output_of', lambda *argv: str(tmp_path))
    with pytest.raises(checks.SetupError, match=r'Python\.h') as info:
        checks.check_compiler(sys.executable)
    assert 'python3-dev' in str(info.value)
    (tmp_path / 'Python.h').touch()
    checks.check_compiler(sys.executable)


def test_build_kind(monkeypatch):
    gpu = {**FACTS, 'archs': ['90']}
    release = ['Cuda compilation tools, release 13.0, V13.0.88']
    monkeypatch.setattr(checks.shutil, 'which', lambda *a, **k: '/x/nvcc')
    monkeypatch.setattr(checks, 'output_of', lambda *argv: release[0])
    monkeypatch.delenv('TORCH_CUDA_ARCH_LIST', raising=False)
    assert checks.choose_build('auto', FACTS)[0] == 'cpu'
    assert checks.choose_build('auto', gpu)[0] == 'cuda13.0-sm90'
    assert checks.choose_build('off', gpu)[0] == 'cpu'
    monkeypatch.setenv('TORCH_CUDA_ARCH_LIST', '8.0;9.0')
    assert checks.choose_build('on', FACTS)[0] == 'cuda13.0-sm8.0-9.0'
    release[0] = 'Cuda compilation tools, release 12.4, V12.4.1'
    build, env, note = checks.choose_build('auto', gpu)
    assert (build, env['CUDA_VISIBLE_DEVICES']) == ('cpu', '')
    assert 'CUDA of nvcc is 12' in note
    with pytest.raises(checks.SetupError, match='--cuda on'):
        checks.choose_build('on', gpu)


# The cache of built wheels.


def test_cache_key_names_everything_the_binary_depends_on():
    keys = {wheel_cache.cache_key('2.3.6', FACTS, 'cpu')}
    keys.add(wheel_cache.cache_key('2.3.7', FACTS, 'cpu'))
    keys.add(wheel_cache.cache_key('2.3.6', FACTS, 'cuda13.0-sm90'))
    for name, value in (
        ('torch', '2.12.0+cpu'),
        ('python', 'cp312'),
        ('platform', 'linux-aarch64'),
    ):
        facts = {**FACTS, name: value}
        keys.add(wheel_cache.cache_key('2.3.6', facts, 'cpu'))
    assert len(keys) == 6
    assert all('/' not in key and ' ' not in key for key in keys)


def test_cache_needs_a_home(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert wheel_cache.cache_root() == tmp_path / 'mmrank'
    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setattr(os.path, 'expanduser', lambda path: path)
    with pytest.raises(checks.SetupError, match='HOME is not set') as info:
        wheel_cache.cache_root()
    assert 'XDG_CACHE_HOME' in str(info.value)


def test_torn_or_tampered_wheel_is_not_used(monkeypatch, tmp_path):
    wheel = tmp_path / 'x-1.whl'
    wheel.write_bytes(b'wheel')
    folder = tmp_path / 'key'
    assert wheel_cache.find(folder) == (None, '')
    stored = wheel_cache.store(wheel, folder)
    assert wheel_cache.find(folder) == (stored, '')
    stored.write_bytes(b'wheeL')
    assert 'SHA-256' in wheel_cache.find(folder)[1]
    wheel_cache.store(wheel, folder)
    Path(f'{stored}.sha256').unlink()
    assert 'SHA-256' in wheel_cache.find(folder)[1]

    def break_off(source, target):
        (Path(target) / 'x-1.whl').write_bytes(b'wh')
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, 'copy', break_off)
    with pytest.raises(KeyboardInterrupt):
        wheel_cache.store(wheel, folder)
    assert 'SHA-256' in wheel_cache.find(folder)[1]


def write_script(path, text):
    """An executable shell script in place of a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


def test_verify_names_the_trouble(tmp_path):
    python = write_script(tmp_path / 'python', 'echo "ImportError: no symbol" >&2; exit 1')
    assert wheel_cache.verify(python, '2.3.6') == 'ImportError: no symbol'
    write_script(python, 'kill -7 $$')
    assert wheel_cache.verify(python, '2.3.6') == 'exit -7'


@pytest.mark.parametrize(
    ('version', 'passes'), [('2.3.6', True), ('2.3.6.post1', True), ('2.3.60', False)]
)
def test_verify_takes_post_releases(tmp_path, version, passes):
    """Stand-ins for torch and mmcv; nms keeps what the real one keeps."""
    (tmp_path / 'mmcv').mkdir()
    (tmp_path / 'mmcv' / '__init__.py').write_text(f'__version__="{version}"')
    (tmp_path / 'mmcv' / 'ops.py').write_text(
        'import torch\n'
        'def nms(boxes, scores, iou_threshold):\n'
        '    return None, torch.tensor([0, 2])\n'
    )
    (tmp_path / 'torch.py').write_text(
        'class tensor(list):\n'
        '    def __init__(self, values, device=None):\n'
        '        super().__init__(values)\n'
        '    tolist = list.copy\n'
    )
    python = write_script(
        tmp_path / 'python', f'PYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"'
    )
    trouble = wheel_cache.verify(python, '2.3.6')
    assert trouble == ('' if passes else 'AssertionError: mmcv is 2.3.60, not 2.3.6')


def test_second_process_waits_for_the_lock(tmp_path):
    code = (
        f'import sys; sys.path.insert(0, {str(TOOLS)!r})\n'
        'from pathlib import Path\n'
        'from bootstrap_parts import wheel_cache\n'
        'say = lambda: print("waiting", flush=True)\n'
        'with wheel_cache.hold(Path(sys.argv[1]), say):\n'
        '    print("held", flush=True)\n'
    )
    lock = tmp_path / 'locks' / 'x'
    argv = [sys.executable, '-c', code, str(lock)]
    with wheel_cache.hold(lock, pytest.fail):
        second = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert second.stdout.readline() == 'waiting\n'
        assert second.poll() is None
    assert second.communicate(timeout=20)[0] == 'held\n'


# mmcv: found, ready or built.


@pytest.fixture
def made(monkeypatch, tmp_path):
    """A bootstrap whose commands are recorded; ``works`` says what runs."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    args = bootstrap.parse_args(['--venv', str(tmp_path / 'my vénv')])
    args.venv.mkdir()
    made = steps.Bootstrap(args, 0)
    made.ran, made.said, made.works = [], [], []
    place = tmp_path / 'cache' / 'mmrank' / 'wheels'
    made.folder = place / wheel_cache.cache_key(made.mmcv, FACTS, 'cpu')

    def run(argv, **env):
        argv = [str(part) for part in argv]
        made.ran.append(' '.join(argv))
        if 'wheel' in argv:
            folder = Path(argv[argv.index('-w') + 1])
            (folder / 'onedl_mmcv-2.3.6-built.whl').write_bytes(b'built')

    monkeypatch.setattr(made.display, 'run', run)
    monkeypatch.setattr(made.display, 'write', made.said.append)
    monkeypatch.setattr(made.display, 'begin', made.said.append)
    monkeypatch.setattr(checks, 'check_compiler', lambda python: None)
    monkeypatch.setattr(checks, 'output_of', lambda *a: repr(FACTS))
    monkeypatch.setattr(steps.json, 'loads', lambda text: FACTS)
    monkeypatch.setattr(wheel_cache, 'verify', lambda *argv: made.works.pop(0))
    return made


def test_ready_wheel_comes_before_the_build(made):
    made.args.find_links = '/a folder/räder'
    made.works = ['no mmcv', '']
    made.install_mmcv()
    (line,) = made.ran
    for part in (
        '--only-binary onedl-mmcv',
        '--no-index',
        '--find-links /a folder/räder',
        'onedl-mmcv==2.3.6.*',
    ):
        assert part in line
    assert not made.folder.exists()


def test_ready_wheel_that_does_not_run_is_refused_and_mmcv_built(made):
    made.args.find_links = 'https://example.org/wheels'
    made.works = ['no mmcv', 'undefined symbol', '']
    made.install_mmcv()
    assert len(made.ran) == 3
    assert ' wheel ' in made.ran[1]
    assert made.ran[2].endswith('onedl_mmcv-2.3.6-built.whl')
    notes = [x for x in made.said if 'undefined symbol' in x]
    assert len(notes) == 1
    assert 'https://example.org/wheels' in notes[0]
    assert wheel_cache.find(made.folder)[1] == ''
    assert not list(made.folder.parent.glob('.build-*'))


def test_cached_wheel_is_taken_unless_it_was_changed(made, tmp_path):
    wheel = tmp_path / 'onedl_mmcv-2.3.6-kept.whl'
    wheel.write_bytes(b'kept')
    stored = wheel_cache.store(wheel, made.folder)
    made.works = ['no mmcv', '']
    made.install_mmcv()
    assert [x.endswith('-kept.whl') for x in made.ran] == [True]
    stored.write_bytes(b'kepT')
    made.ran.clear()
    made.works = ['no mmcv', '']
    made.install_mmcv()
    assert [x for x in made.said if 'SHA-256' in x]
    assert made.ran[-1].endswith('-built.whl')
    assert wheel_cache.find(made.folder)[0].name.endswith('-built.whl')
    assert made.works == []


def test_built_mmcv_that_does_not_run_is_not_kept(made):
    made.works = ['no mmcv', 'undefined symbol']
    with pytest.raises(checks.SetupError, match='undefined symbol') as info:
        made.install_mmcv()
    assert '--cuda off' in str(info.value)
    assert not made.folder.exists()


def test_mmcv_that_runs_is_left_alone_unless_a_build_is_requested(made):
    made.works = ['']
    made.install_mmcv()
    assert made.ran == []
    made.args.rebuild_mmcv = True
    made.works = ['']
    made.install_mmcv()
    assert ' wheel ' in made.ran[0]


def test_packages_are_installed_by_their_hashes(made):
    made.again = False
    made.settings = {}
    listed = []
    made.listed = lambda wanted: [steps.locked(wanted)]
    made.uv = lambda command, *argv: listed.append(argv[-1])
    made.install()
    first, later = listed
    names = {line.split('==')[0] for line in first}
    assert 'torch' in names
    assert not names & {'onedl-mmcv', *steps.LATER}
    assert {line.split('==')[0] for line in later} == set(steps.LATER)


# The lock file, the stamp and the folder of the environment.


def test_everything_in_the_lock_has_a_hash():
    lines = steps.locked(lambda name: True)
    assert len(lines) > 50
    for line in lines:
        assert '==' in line
        assert '--hash=sha256:' in line, line
    assert steps.pinned('torch') in lines_of('torch')[0]
    assert [x for x in lines if x.startswith('uv==')]


def lines_of(name):
    """The lock file's requirements of a package."""
    return steps.locked(name.__eq__)


def test_listed_requires_hashes(made):
    flags = made.listed('wheel'.__eq__)
    assert flags[0] == '--require-hashes'
    assert flags[-1].read_text() == lines_of('wheel')[0]


def test_settings_of_pip_reach_uv(monkeypatch, tmp_path):
    for name in steps.PIP_TO_UV.values():
        monkeypatch.delenv(name, raising=False)
    config = (
        ":env:.index-url='//env.example/simple'\n"
        f":env:.find-links='{tmp_path} /absent https://a.example/x'\n"
        "global.cert='/etc/my.pem'\n"
        "global.extra-index-url='\\n//a.example\\n//b.example'\n"
        "global.index-url='//file.example/simple'\n"
        "install.trusted-host='a.example'\n"
        "list.format='columns'\n"
        "wheel.index-url='//other.example'\n"
    )
    found = steps.uv_settings(config)
    assert found['UV_DEFAULT_INDEX'] == '//env.example/simple'
    assert found['UV_INDEX'] == '//a.example //b.example'
    assert found['UV_FIND_LINKS'] == f'{tmp_path},https://a.example/x'
    assert found['SSL_CERT_FILE'] == '/etc/my.pem'
    assert found['UV_INSECURE_HOST'] == 'a.example'
    # Who sets uv's own variable means it.
    monkeypatch.setenv('UV_DEFAULT_INDEX', 'https://mine.example')
    assert 'UV_DEFAULT_INDEX' not in steps.uv_settings(config)
    assert set(steps.uv_settings('')) <= {'UV_INDEX_STRATEGY', 'UV_SYSTEM_CERTS'}


def test_stamp_makes_the_second_run_do_nothing(monkeypatch, tmp_path):
    pytest.importorskip('mmdet')
    venv = tmp_path / 'my vénv'
    write_script(venv / 'bin' / 'python', f'exec "{sys.executable}" "$@"')
    assert not steps.is_ready(venv)
    steps.write_stamp(venv, state='creating')
    assert not steps.is_ready(venv)
    steps.write_stamp(venv, state='ready', digest=steps.digest())
    # mmrank is found from the working directory here.
    assert steps.is_ready(venv)
    monkeypatch.setattr(bootstrap.wheel_cache, 'hold', lambda *a: pytest.fail('not ready'))
    assert bootstrap.main(['--venv', str(venv)]) == 0
    changed = steps.digest(lock=b'torch==9')
    assert changed != steps.digest() != steps.digest(root='/elsewhere')
    monkeypatch.setattr(steps, 'digest', lambda: changed)
    assert not steps.is_ready(venv)
    (venv / steps.STAMP).write_text('{"state": "rea')
    assert not steps.is_ready(venv)


def test_folder_of_the_environment(monkeypatch, tmp_path):
    venv = tmp_path / 'venv'
    assert steps.venv_state(venv) == 'create'
    venv.mkdir()
    assert steps.venv_state(venv) == 'create'
    (venv / 'mine.txt').touch()
    with pytest.raises(checks.SetupError, match='no working Python'):
        steps.venv_state(venv)
    monkeypatch.setattr(checks, 'probe_python', lambda path: (3, 11))
    assert steps.venv_state(venv) == 'use'
    with pytest.raises(checks.SetupError, match=r'wanted is Python 3\.12'):
        steps.venv_state(venv, (3, 12))
    # Cut off while this script made it, or while it updated a whole one.
    steps.write_stamp(venv, state='updating')
    assert steps.venv_state(venv) == 'use'
    steps.write_stamp(venv, state='creating')
    assert steps.venv_state(venv, (3, 12)) == 'create'


# Commands, messages and interrupts.


def test_task_ends_what_it_started(monkeypatch, tmp_path):
    # A shell's background job ignores the first signal, as compilers may.
    code = 'sleep 60 & echo child $!; echo "[3/78] c++ nms.cpp"; wait'
    display = progress.Display(1, tmp_path / 'log')
    shown = []

    def write(news, stays=True):
        display.written = 0
        shown.append(news)
        if '3/78 files' in news:
            raise KeyboardInterrupt

    monkeypatch.setattr(display, 'write', write)
    monkeypatch.setattr(progress.end, '__defaults__', (0.2,))
    display.begin('building')
    with pytest.raises(KeyboardInterrupt):
        display.run(['sh', '-c', code])
    child = int((tmp_path / 'log').read_text().split('child ')[-1].split()[0])
    deadline = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert progress.clock(125) == '02:05'


def is_alive(pid):
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        text = Path(f'/proc/{pid}/stat').read_text()
    except FileNotFoundError:
        return False
    return text.rsplit(')', 1)[1].split()[0] != 'Z'


def test_failed_command_shows_the_end_of_its_log(tmp_path):
    display = progress.Display(1, tmp_path / 'log')
    (tmp_path / 'log').write_text('of an earlier command\n')
    display.begin('torch')
    with pytest.raises(checks.SetupError, match='exit status 3') as info:
        display.run(['sh', '-c', 'echo no route to host >&2; exit 3'])
    assert 'no route to host' in str(info.value)
    assert 'of an earlier command' not in str(info.value)
    assert str(tmp_path / 'log') in str(info.value)


@pytest.mark.parametrize(
    ('number', 'words'), [(errno.ENOSPC, 'free some disk space'), (errno.EROFS, 'writable')]
)
def test_disk_errors_are_one_message(monkeypatch, capsys, number, words):
    def fail(args):
        raise OSError(number, os.strerror(number), '/cache/locks/x')

    monkeypatch.setattr(bootstrap, 'make', fail)
    monkeypatch.setattr(bootstrap.signal, 'signal', lambda *args: None)
    assert bootstrap.main([]) == 1
    err = capsys.readouterr().err
    assert '/cache/locks/x' in err
    assert os.strerror(number) in err
    assert words in err
    assert 'XDG_CACHE_HOME' in err


def run_script(*argv, **env):
    """Run the bootstrap; returns its exit status, its output and errors."""
    done = subprocess.run(
        [sys.executable, str(TOOLS / 'bootstrap.py'), *argv],
        capture_output=True,
        text=True,
        env={'PATH': os.environ['PATH'], **env},
    )
    return done.returncode, done.stdout, done.stderr


def test_cache_that_is_not_writable_is_one_message(tmp_path):
    (tmp_path / 'file').touch()
    status, _, err = run_script('--venv', str(tmp_path / 'v'), HOME=str(tmp_path / 'file'))
    assert status == 1
    assert 'XDG_CACHE_HOME' in err
    assert str(tmp_path / 'file') in err
    assert 'Traceback' not in err
    assert not (tmp_path / 'v').exists()


def test_interrupt_exits_130_and_leaves_no_ready_stamp(tmp_path):
    script = tmp_path / 'run.py'
    script.write_text(
        f'import sys, signal; sys.path.insert(0, {str(TOOLS)!r})\n'
        'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
        'import bootstrap\n'
        'from bootstrap_parts import steps\n'
        'steps.Bootstrap.check = lambda self: None\n'
        'def create(self):\n'
        '    self.venv.mkdir()\n'
        '    self.display.begin("sleeping")\n'
        '    self.display.run(["sh", "-c", "echo begun; sleep 60"])\n'
        'steps.Bootstrap.create = create\n'
        f'sys.exit(bootstrap.main(["--venv", {str(tmp_path / "v")!r}]))\n'
    )
    run = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={'XDG_CACHE_HOME': str(tmp_path / 'cache'), 'PATH': '/usr/bin:/bin'},
    )
    log = tmp_path / 'v' / 'bootstrap.log'
    deadline = time.monotonic() + 20
    while not (log.exists() and 'begun\n' in log.read_text()):
        assert time.monotonic() < deadline
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=20)
    assert run.returncode == 130
    assert 'Interrupted' in err
    assert 'Traceback' not in err
    assert 'sleeping' in out
    assert time.monotonic() - began < 15
    assert not steps.is_ready(tmp_path / 'v')


def test_help_teaches():
    status, out, _ = run_script('--help')
    assert status == 0
    assert '--find-links FOLDER|URL' in out
    assert '~/.cache/mmrank/wheels' in out


def test_makefile_works_in_any_path(tmp_path):
    """Every recipe runs the right programs where paths have spaces."""
    if shutil.which('make') is None:
        pytest.skip('no make here')
    place = tmp_path / 'my vénv'
    say = 'for part in "$@"; do echo "<$part>"; done'
    write_script(place / 'bin' / 'python', say)
    done = subprocess.run(
        [
            *('make', '-C', str(ROOT), 'demo', 'test', 'test-slow', 'lint'),
            *(f'VENV={place}', f'PYTHON={place}/bin/python'),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f'<--venv>\n<{place}>' in done.stdout
    for part in ('<tools/demo.py>', '<pytest>', '<slow or hypothesis>', '<ruff>'):
        assert part in done.stdout
