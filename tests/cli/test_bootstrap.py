"""The bootstrap with stand-ins for downloads; its whole run is what `make test` itself does."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / 'tools' / 'bootstrap.py'


@pytest.fixture
def bootstrap(monkeypatch, tmp_path):
    """The script as a module, with caches in ``tmp_path``."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    spec = importlib.util.spec_from_file_location('bootstrap', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Commands:
    """Stands in for ``run``: records commands, fails where ``fails`` says so."""

    def __init__(self, fails=lambda command: False):
        self.fails, self.done = fails, []

    def __call__(self, *command, **env):
        command = [*map(str, command)]
        self.done.append(' '.join(command))
        if self.fails(self.done[-1]):
            raise subprocess.CalledProcessError(1, command)

    def count(self, words):
        return sum(words in command for command in self.done)


def test_mmcv_is_built_apart_from_torch_or_compiled_on_request(bootstrap, monkeypatch, tmp_path):
    def install(compile_mmcv, works=False, fails=lambda command: False):
        commands = Commands(fails)
        monkeypatch.setattr(bootstrap, 'run', commands)
        monkeypatch.setattr(bootstrap, 'output', lambda *argv: str(works))
        args = bootstrap.argparse.Namespace(venv=tmp_path, compile_mmcv=compile_mmcv)
        bootstrap.install_mmcv(args, tmp_path / 'bin' / 'python', ('uv', 'install'))
        return commands

    (command,) = install(False).done
    assert command.startswith('uv install --no-deps --require-hashes')
    assert '--no-build-isolation' not in command
    assert command.endswith(f'--build-constraints {tmp_path / "mmrank-build.txt"}')
    built_with = (tmp_path / 'mmrank-build.txt').read_text().splitlines()
    assert {x.split('==')[0] for x in built_with} == {'packaging', 'setuptools', 'wheel'}
    assert all('--hash=sha256:' in x for x in built_with)
    commands = install(True)
    assert commands.count('--no-build-isolation --force-reinstall --no-cache-dir') == 1
    assert commands.count('mmcv.ops.nms') == 1
    assert not install(True, works=True).done
    with pytest.raises(subprocess.CalledProcessError):
        install(True, fails=lambda command: 'mmcv.ops.nms' in command)


@pytest.mark.parametrize('lock', ['lock.txt', 'lock_adapters.txt'])
def test_everything_is_installed_by_hash(bootstrap, tmp_path, lock):
    lock = ROOT / 'requirements' / lock
    *flags, path = bootstrap.pins(tmp_path, lambda name: True, lock)
    assert flags == ['--require-hashes', '-r']
    lines = path.read_text().splitlines()
    assert len(lines) > 50
    assert all('==' in line and '--hash=sha256:' in line for line in lines)
    names = {line.split('==')[0] for line in lines}
    assert {'uv', 'torch'} < names
    assert ({'onedl-mmcv', *bootstrap.LATER} <= names) == (lock == bootstrap.LOCK)
    # Its licence, AGPL, would be that of whatever imports it.
    assert 'ultralytics' not in names


@pytest.mark.parametrize(
    ('config', 'name', 'value'),
    [
        ("global.index-url='//file/simple'", 'UV_DEFAULT_INDEX', '//file/simple'),
        (":env:.index-url='//a'\nglobal.index-url='//b'", 'UV_DEFAULT_INDEX', '//a'),
        ("wheel.index-url='//other'\nlist.format='columns'", 'UV_DEFAULT_INDEX', None),
        ("global.extra-index-url='\\n//a\\n//b'", 'UV_INDEX', '//a //b'),
        (":env:.find-links='/tmp /absent https://a/x'", 'UV_FIND_LINKS', '/tmp,https://a/x'),
        ("global.cert='/etc/my.pem'", 'SSL_CERT_FILE', '/etc/my.pem'),
        ("install.trusted-host='a.example'", 'UV_INSECURE_HOST', 'a.example'),
        # Packages are compiled when they are installed.
        ('', 'UV_COMPILE_BYTECODE', '1'),
    ],
)
def test_settings_of_pip_reach_uv(bootstrap, monkeypatch, config, name, value):
    for known in bootstrap.UV.split():
        monkeypatch.delenv(known, raising=False)
    assert bootstrap.uv_settings(config).get(name) == value
    # Who sets uv's own variable means it.
    monkeypatch.setenv(name, 'mine')
    assert name not in bootstrap.uv_settings(config)


@pytest.mark.parametrize('alone', [False, True])
def test_only_a_whole_run_leaves_a_stamp_and_a_second_one_does_nothing(
    alone, bootstrap, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        bootstrap, 'output', lambda *argv: 'True' if 'import importlib' in argv[-1] else ''
    )
    monkeypatch.setattr(bootstrap, 'install_mmcv', lambda *args: None)
    args = bootstrap.argparse.Namespace(
        venv=tmp_path, torch_alone=alone, lock=None, compile_mmcv=False
    )
    monkeypatch.setattr(bootstrap, 'run', Commands(lambda command: 'import mm' in command))
    with pytest.raises(subprocess.CalledProcessError):
        bootstrap.make(args)
    first, second = Commands(), Commands()
    for commands in (first, second):
        monkeypatch.setattr(bootstrap, 'run', commands)
        bootstrap.make(args)
    assert first.count('install')
    assert first.count('compileall') == 1
    assert first.count('import mmengine, mmcv.ops, mmdet') == (not alone)
    assert first.count('-m mmrank.mmcv_ops') == (not alone)
    assert not second.done
    # Compiled operators are asked for: not what was done.
    args.compile_mmcv = True
    bootstrap.make(args)
    assert second.done
    args.compile_mmcv = False
    second.done.clear()
    # A new lock file makes it work again.
    monkeypatch.setattr(bootstrap, 'LOCK', tmp_path / 'lock.txt')
    bootstrap.LOCK.write_text('uv==1 --hash=sha256:0')
    bootstrap.make(args)
    assert second.count('mmrank.losses')
    assert not second.count('mmrank.mmcv_ops')


def run_script(*argv, **env):
    done = subprocess.run([sys.executable, SCRIPT, *argv], capture_output=True, text=True, env=env)
    return done.returncode, done.stdout + done.stderr


def test_other_python_and_unwritable_cache_are_one_message(bootstrap, monkeypatch, tmp_path):
    (tmp_path / 'file').write_text('')
    status, said = run_script('--venv', str(tmp_path / 'v'), XDG_CACHE_HOME=str(tmp_path / 'file'))
    assert status == 1
    assert 'Fix:' in said
    assert 'XDG_CACHE_HOME' in said
    assert 'Traceback' not in said
    monkeypatch.setattr(bootstrap.sys, 'version_info', (3, 14, 0))
    monkeypatch.setattr(bootstrap.sys, 'argv', ['bootstrap.py'])
    with pytest.raises(SystemExit, match='make env PYTHON='):
        bootstrap.main()


@pytest.mark.parametrize('venv', ['', ' ', 'mine', 'mine/pins.txt'])
def test_what_is_no_folder_of_an_environment_is_left_alone(tmp_path, venv):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine/pins.txt').write_text('six')
    status, said = run_script(
        *('--venv', str(tmp_path / venv) if 'mine' in venv else venv),
        **{'XDG_CACHE_HOME': str(tmp_path / 'cache'), 'PATH': '/nowhere'},
    )
    assert status == 1
    assert '--venv' in said.splitlines()[-2]
    assert 'Fix: --venv PATH' in said
    assert [x.name for x in (tmp_path / 'mine').iterdir()] == ['pins.txt']
    assert (tmp_path / 'mine/pins.txt').read_text() == 'six'


def test_without_a_home_caches_are_temporary(bootstrap, monkeypatch, tmp_path):
    assert bootstrap.cache() == tmp_path / 'cache/mmrank'
    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setattr(bootstrap.tempfile, 'gettempdir', lambda: str(tmp_path))

    def home():
        raise RuntimeError('Could not determine home directory.')

    monkeypatch.setattr(bootstrap.Path, 'home', home)
    assert bootstrap.cache().parent.parent == tmp_path


@pytest.mark.processes
def test_second_process_waits_for_a_killed_ones_child(tmp_path):
    cache = tmp_path / 'cache' / 'mmrank'
    cache.mkdir(parents=True)
    holder = subprocess.Popen(['flock', cache / 'bootstrap.lock', 'sleep', '60'])
    try:
        time.sleep(0.5)
        # What starts the tests may ignore Ctrl-C, and children inherit that.
        code = 'import runpy, signal, sys; signal.signal(2, signal.default_int_handler); '
        code += 'sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name="__main__")'
        command = [sys.executable, '-c', code, SCRIPT, '--venv', tmp_path / 'v']
        env = {'XDG_CACHE_HOME': str(tmp_path / 'cache'), 'PATH': '/nowhere'}
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        second = subprocess.Popen(command, env=env, **pipes)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(2)
        second.send_signal(signal.SIGINT)
        said = second.communicate(timeout=20)[0]
        assert f'Waiting for another bootstrap, which locks {cache}/bootstrap.lock' in said
        assert 'Interrupted. Run it again' in said
        assert not (tmp_path / 'v').exists()
    finally:
        holder.kill()
        subprocess.run(['pkill', '-P', str(holder.pid)])


def test_makefile_works_in_any_path(tmp_path):
    """Every recipe runs the right programs where paths have spaces."""
    if shutil.which('make') is None:
        pytest.skip('no make here')
    place = tmp_path / 'my vénv'
    (place / 'bin').mkdir(parents=True)
    python = place / 'bin' / 'python'
    python.write_text('#!/bin/sh\nfor part in "$@"; do echo "<$part>"; done\n')
    python.chmod(0o755)
    shutil.copy(python, place / 'bin' / 'pyright')
    shutil.copytree(place, f'{place}-adapters')
    recipes = ('try', 'demo', 'test', 'test-slow', 'lint')
    command = ['make', '-C', ROOT, *recipes, f'VENV={place}', f'TRY_VENV={place}']
    command.append(f'PYTHON={python}')
    env = {**os.environ, 'PATH': f'{place / "bin"}:{os.environ["PATH"]}'}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert '<--pythonpath>' in done.stdout
    assert f'<--venv>\n<{place}>' in done.stdout
    assert f'<{place}-adapters>\n<--lock>' in done.stdout
    words = ('--torch-alone', 'tools/first_result.py', 'tests/adapters', 'tools/demo.py')
    for part in (*words, 'pytest', 'slow or hypothesis', 'ruff'):
        assert f'<{part}>' in done.stdout
