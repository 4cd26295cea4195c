"""The bootstrap's parts; its whole run is what `make test` itself does."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / 'tools'
sys.path.insert(0, str(TOOLS))

# The bootstrap is a script, not a part of the package: found by its folder.
from bootstrap_parts import (  # noqa: E402
    checks,
    cuda,
    environment,
    progress,
    wheel_cache,
)

sys.path.remove(str(TOOLS))

Usage = namedtuple('Usage', 'total used free')
KEY = ('2.3.6', '2.11.0+cu130', 'cp311', 'linux-x86_64', 'cpu')


def test_cache_key_names_everything_the_binary_depends_on():
    keys = {wheel_cache.cache_key(*KEY)}
    for index, other in enumerate(
        ('2.3.7', '2.11.0+cpu', 'cp312', 'linux-aarch64', 'cuda13.0-sm90')
    ):
        changed = [*KEY[:index], other, *KEY[index + 1 :]]
        keys.add(wheel_cache.cache_key(*changed))
    assert len(keys) == 6
    assert all('/' not in key and ' ' not in key for key in keys)


def test_cache_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert wheel_cache.cache_root() == tmp_path / 'mmrank' / 'wheels'


def test_store_is_whole_or_nothing(monkeypatch, tmp_path):
    wheel = tmp_path / 'x-1.whl'
    wheel.write_bytes(b'wheel')
    folder = tmp_path / 'key'

    def break_off(source, target):
        Path(target).write_bytes(b'wh')
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, 'copyfile', break_off)
        with pytest.raises(KeyboardInterrupt):
            wheel_cache.store(wheel, folder)
    assert list(folder.iterdir()) == []
    assert wheel_cache.find(folder) is None
    stored = wheel_cache.store(wheel, folder)
    assert wheel_cache.find(folder) == stored
    assert stored.read_bytes() == b'wheel'


def test_may_be_cached_asks_before_torch_is_there(monkeypatch, tmp_path):
    monkeypatch.setattr(
        wheel_cache.sysconfig, 'get_platform', lambda: 'linux-x86_64'
    )
    ask = ('2.3.6', '2.11.0')
    assert not wheel_cache.may_be_cached(tmp_path, *ask, 'cp311')
    folder = tmp_path / wheel_cache.cache_key(*KEY)
    folder.mkdir()
    assert not wheel_cache.may_be_cached(tmp_path, *ask, 'cp311')
    (folder / 'x.whl').touch()
    assert wheel_cache.may_be_cached(tmp_path, *ask, 'cp311')
    assert not wheel_cache.may_be_cached(tmp_path, *ask, 'cp312')
    assert not wheel_cache.may_be_cached(tmp_path, '2.3.6', '2.12.0', 'cp311')


def test_verify_tells_the_trouble(tmp_path):
    python = tmp_path / 'python'
    python.write_text(
        '#!/bin/sh\necho "ImportError: undefined symbol" >&2\nexit 1\n'
    )
    python.chmod(0o755)
    trouble = wheel_cache.verify(python, '2.3.6')
    assert trouble == 'ImportError: undefined symbol'


def test_supported_python_is_taken_as_it_is(monkeypatch):
    monkeypatch.setattr(checks, 'probe_python', lambda path: (3, 12))
    assert checks.find_python('/x/python', (3, 12)) == '/x/python'


def test_other_python_looks_for_one_that_starts(monkeypatch):
    # A shim of a version manager is on PATH without the version behind it.
    works = {'/b/python3.12': (3, 12), '/c/python3.10': (3, 10)}
    on_path = {
        'python3.11': '/shim/python3.11',
        'python3.12': '/b/python3.12',
        'python3.10': '/c/python3.10',
    }
    monkeypatch.setattr(checks, 'probe_python', works.get)
    monkeypatch.setattr(checks.shutil, 'which', on_path.get)
    assert checks.find_python('/x/python3.13', (3, 13)) == '/b/python3.12'


@pytest.mark.parametrize(
    ('running', 'words'),
    [
        ((3, 13), ['Python 3.13', '3.10, 3.11, 3.12', 'make env PYTHON=']),
        ((3, 11), ['venv or ensurepip', 'python3.11-venv']),
    ],
)
def test_wrong_python_says_what_to_do(monkeypatch, running, words):
    monkeypatch.setattr(checks, 'probe_python', lambda path: None)
    monkeypatch.setattr(checks.shutil, 'which', lambda name: None)
    with pytest.raises(checks.SetupError) as caught:
        checks.find_python('/x/python', running)
    for word in words:
        assert word in str(caught.value)


def test_too_little_disk_adds_up_per_file_system(monkeypatch, tmp_path):
    gigabyte = 1024**3
    monkeypatch.setattr(
        checks.shutil, 'disk_usage', lambda path: Usage(9, 2, 7 * gigabyte)
    )
    checks.check_disk([(tmp_path / 'a', 6 * gigabyte)])
    with pytest.raises(checks.SetupError, match=r'8\.0 GB are needed') as info:
        checks.check_disk(
            [(tmp_path / 'a', 6 * gigabyte), (tmp_path / 'b', 2 * gigabyte)]
        )
    assert '7.0 GB are free' in str(info.value)
    assert 'XDG_CACHE_HOME' in str(info.value)


def test_no_compiler_says_how_to_get_one(monkeypatch):
    monkeypatch.setenv('CXX', '/nowhere/g++')
    with pytest.raises(checks.SetupError, match='No working C\\+\\+') as info:
        checks.check_compiler()
    assert 'apt-get install g++' in str(info.value)


def test_missing_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(
        checks.sysconfig, 'get_paths', lambda: {'include': str(tmp_path)}
    )
    with pytest.raises(checks.SetupError, match=r'no Python\.h') as info:
        checks.check_headers(sys.executable)
    assert '-dev' in str(info.value)
    (tmp_path / 'Python.h').touch()
    checks.check_headers(sys.executable)


def test_build_kind(monkeypatch):
    gpu = dict(archs=['90'], torch_cuda='13.0')
    assert (
        cuda.choose_build('auto', dict(archs=[], torch_cuda='13.0'))[0]
        == 'cpu'
    )
    monkeypatch.setattr(cuda, 'find_nvcc', lambda: '/x/nvcc')
    monkeypatch.setattr(cuda, 'nvcc_major', lambda path: 13)
    monkeypatch.delenv('TORCH_CUDA_ARCH_LIST', raising=False)
    assert cuda.choose_build('auto', gpu)[0] == 'cuda13.0-sm90'
    assert cuda.choose_build('off', gpu)[0] == 'cpu'
    monkeypatch.setattr(cuda, 'nvcc_major', lambda path: 12)
    build, env, note = cuda.choose_build('auto', gpu)
    assert (build, env['CUDA_VISIBLE_DEVICES']) == ('cpu', '')
    assert 'NMS will not run on the GPU' in note
    with pytest.raises(checks.SetupError, match='--cuda on'):
        cuda.choose_build('on', gpu)


def make_venv(folder):
    """The look of an environment, with this interpreter."""
    (folder / 'bin').mkdir(parents=True)
    script = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    (folder / 'bin' / 'python').write_text(script)
    (folder / 'bin' / 'python').chmod(0o755)


def test_stamp_makes_the_second_run_do_nothing(tmp_path):
    pytest.importorskip('mmdet')
    venv = tmp_path / 'venv'
    wanted = environment.digest()
    assert not environment.is_ready(venv, wanted)
    make_venv(venv)
    assert not environment.is_ready(venv, wanted)
    environment.write_stamp(venv, state='making')
    assert not environment.is_ready(venv, wanted)
    environment.write_stamp(venv, state='ready', digest=wanted)
    # mmrank is found from the working directory here.
    assert environment.is_ready(venv, wanted)
    changed = environment.digest(lock=b'torch==9')
    assert changed != wanted
    assert not environment.is_ready(venv, changed)
    assert environment.digest(root='/elsewhere') != wanted
    (venv / environment.STAMP).write_text('{"state": "rea')
    assert not environment.is_ready(venv, wanted)


def test_folder_of_the_environment(monkeypatch, tmp_path):
    venv = tmp_path / 'venv'
    assert environment.venv_state(venv, None) == 'create'
    venv.mkdir()
    assert environment.venv_state(venv, None) == 'create'
    (venv / 'mine.txt').touch()
    with pytest.raises(checks.SetupError, match='did not create it'):
        environment.venv_state(venv, None)
    # Cut off by Ctrl-C while it was created: our own stamp is there.
    environment.write_stamp(venv, state='making')
    assert environment.venv_state(venv, None) == 'create'
    monkeypatch.setattr(checks, 'probe_python', lambda path: (3, 11))
    assert environment.venv_state(venv, None) == 'use'
    with pytest.raises(checks.SetupError, match=r'requests 3\.12'):
        environment.venv_state(venv, (3, 12))


def test_half_installed_packages_are_installed_again(tmp_path):
    site = tmp_path / 'lib' / 'python3.11' / 'site-packages'
    for name, whole in (('whole-1', True), ('half-2', False)):
        folder = site / f'{name}.dist-info'
        folder.mkdir(parents=True)
        (folder / 'METADATA').touch()
        if whole:
            (folder / 'RECORD').touch()
    found = environment.remove_half_installed(tmp_path)
    assert found == ['half-2.dist-info']
    assert (site / 'whole-1.dist-info').is_dir()
    assert not (site / 'half-2.dist-info').exists()


def test_pinned():
    assert environment.pinned('torch') == '2.11.0'
    with pytest.raises(checks.SetupError, match='no version of nothing'):
        environment.pinned('nothing')


def test_task_ends_what_it_started(monkeypatch, tmp_path):
    monkeypatch.setattr(progress, 'GRACE', 0.5)
    # A shell's background job ignores the first signal, as compilers may.
    code = 'echo "[3/78] c++ nms.cpp"; sleep 60 & echo child $!; wait'
    (tmp_path / 'log').touch()
    task = progress.Task(['sh', '-c', code], tmp_path / 'log')
    deadline = time.monotonic() + 20
    while 'child' not in (tmp_path / 'log').read_text() or not task.news:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert task.news == '3/78 files'
    assert task.running()
    task.kill()
    assert not task.running()
    assert not task.reader.is_alive()
    assert progress.clock(125) == '02:05'


def test_interrupt_exits_130_and_leaves_no_ready_stamp(tmp_path):
    script = tmp_path / 'run.py'
    script.write_text(
        f'import sys, signal; sys.path.insert(0, {str(TOOLS)!r})\n'
        'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
        'import bootstrap\n'
        'from bootstrap_parts import steps\n'
        'steps.Bootstrap.check = lambda self: None\n'
        'steps.Bootstrap.create = lambda self: self.venv.mkdir()\n'
        'def wait(self):\n'
        '    task = self.task(["sh", "-c", "echo begun; sleep 60"])\n'
        '    self.display.begin("sleeping")\n'
        '    self.display.wait(task)\n'
        'steps.Bootstrap.install_torch = wait\n'
        f'sys.exit(bootstrap.main(["--venv", {str(tmp_path / "v")!r}]))\n'
    )
    run = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            'XDG_CACHE_HOME': str(tmp_path / 'cache'),
            'PATH': '/usr/bin:/bin',
        },
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
    assert 'sleeping ...' in out
    assert time.monotonic() - began < 15
    assert not (tmp_path / 'v' / environment.STAMP).exists()


def test_help_teaches():
    done = subprocess.run(
        [sys.executable, str(TOOLS / 'bootstrap.py'), '--help'],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert 'examples:' in done.stdout
    assert '~/.cache/mmrank/wheels' in done.stdout


def test_stamp_is_json(tmp_path):
    environment.write_stamp(tmp_path, state='ready', digest='x')
    fields = json.loads((tmp_path / environment.STAMP).read_text())
    assert fields == {'state': 'ready', 'digest': 'x'}
