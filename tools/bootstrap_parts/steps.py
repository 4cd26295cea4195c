"""The steps of the bootstrap, in order."""

import ast
import hashlib
import json
import os
import re
import shutil
import ssl
from pathlib import Path

from . import checks, wheel_cache
from .checks import SetupError
from .progress import Display

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / 'requirements' / 'lock.txt'
STAMP = 'mmrank-bootstrap.json'
#: Raise it when an environment made by an older version must be redone.
FORMAT = 2
#: Installed after the rest. The first two are built against torch and the setuptools of the lock;
#: the third writes the same files as opencv-python, and only with its files does OpenCV import on a
#: server without libGL.
LATER = ('onedl-mmdetection', 'onedl-mmpretrain', 'opencv-python-headless')
#: The lock has all dependencies; builds import what is installed.
INSTALL = ('--no-deps', '--no-build-isolation')
IMPORTS = 'import mmengine, mmcv, mmdet, mmpretrain, mmrank.registry'
#: uv does not read the settings of pip; the variables in which it takes them.
PIP_TO_UV = {
    'index-url': 'UV_DEFAULT_INDEX',
    'extra-index-url': 'UV_INDEX',
    'find-links': 'UV_FIND_LINKS',
    'no-index': 'UV_NO_INDEX',
    'trusted-host': 'UV_INSECURE_HOST',
    'cert': 'SSL_CERT_FILE',
    'client-cert': 'SSL_CLIENT_CERT',
    'proxy': 'ALL_PROXY',
    'timeout': 'UV_HTTP_TIMEOUT',
}


def uv_settings(pip_config):
    """Return the variables that tell uv what ``pip config list`` printed."""
    # The best match of all indexes, as in pip: the hashes guard the rest.
    found = {'UV_INDEX_STRATEGY': 'unsafe-best-match'}
    if ssl.get_default_verify_paths().cafile:
        found['UV_SYSTEM_CERTS'] = '1'
    for section in ('global', 'install', ':env:'):  # the last one counts
        for line in pip_config.splitlines():
            name, _, value = line.partition('=')
            variable = PIP_TO_UV.get(name.replace(f'{section}.', '', 1))
            if variable and name.startswith(f'{section}.'):
                parts = ast.literal_eval(value).split()
                if name.endswith('find-links'):  # pip skips absent folders
                    parts = [x for x in parts if '://' in x or Path(x).exists()]
                separator = ',' if name.endswith('find-links') else ' '
                found[variable] = separator.join(parts)
    return {k: v for k, v in found.items() if v and k not in os.environ}


def locked(wanted, text=None):
    """Return the lock file's requirements whose name is wanted, one a line."""
    text = LOCK.read_text(encoding='utf-8') if text is None else text
    lines = text.replace('\\\n', ' ').splitlines()
    return [line for line in lines if wanted(line.split('==')[0])]


def pinned(name):
    """Return the version that the lock file pins for a package."""
    return re.search(r'==(\S+)', locked(name.__eq__)[0]).group(1)


def digest(lock=None, root=ROOT):
    """Return what an up-to-date environment was made from, as a hash."""
    lock = LOCK.read_bytes() if lock is None else lock
    text = b'%d\0%s\0%s' % (FORMAT, os.fsencode(root), lock)
    return hashlib.sha256(text).hexdigest()


def read_stamp(venv):
    """Return the stamp's fields; none when it is absent or torn."""
    try:
        return json.loads((venv / STAMP).read_text(encoding='utf-8'))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}


def write_stamp(venv, **fields):
    """Replace the stamp in one go."""
    part = venv / f'{STAMP}.part'
    part.write_text(json.dumps(fields) + '\n', encoding='utf-8')
    os.replace(part, venv / STAMP)


def is_ready(venv):
    """Return whether an environment is whole and up to date."""
    names = ('torch', 'mmcv', 'mmdet', 'mmrank')
    code = f'import importlib.util as u; print(all(map(u.find_spec, {names})))'
    wanted = {'state': 'ready', 'digest': digest()}
    if read_stamp(venv) != wanted:
        return False
    return checks.output_of(venv / 'bin' / 'python', '-c', code) == 'True'


def venv_state(venv, asked=None):
    """Return ``'use'`` or ``'create'`` for the folder of an environment."""
    if not venv.exists() or not any(venv.iterdir()):
        return 'create'
    if read_stamp(venv).get('state') == 'creating':
        return 'create'  # cut off while this script made it: uv is quick
    found = checks.probe_python(venv / 'bin' / 'python')
    wanted = [asked] if asked else checks.SUPPORTED
    if found in wanted:
        return 'use'
    has = f'Python {checks.dotted(found)}' if found else 'no working Python'
    raise SetupError(
        f'{venv} exists, with {has} in it; wanted is Python '
        f'{" or ".join(map(checks.dotted, sorted(wanted)))}.\n'
        f'  Fix: rm -rf {venv}, or choose another folder with --venv PATH.'
    )


class Bootstrap:
    """The steps.

    Args:
        args: The command line.
        lock_fd: File descriptor of the held lock, for the children.
    """

    def __init__(self, args, lock_fd):
        self.args = args
        self.venv = args.venv
        self.python = self.venv / 'bin' / 'python'
        self.base_python = checks.find_python(args.python)
        self.mmcv = pinned('onedl-mmcv')
        self.settings = {}
        self.display = Display(5, self.venv / 'bootstrap.log', [lock_fd])

    def pip(self, *argv, **env):
        """Run pip in the environment."""
        env = {'PIP_DISABLE_PIP_VERSION_CHECK': '1', **env}
        self.display.run([self.python, '-m', 'pip', *argv], **env)

    def uv(self, command, *argv):
        """Run ``uv pip`` on the environment."""
        uv = [self.venv / 'bin' / 'uv', 'pip', command, '-p', self.python]
        self.display.run([*uv, *argv], **self.settings)

    def listed(self, wanted):
        """Return the options for requirements of the lock file."""
        path = self.venv / 'requirements.txt'
        path.write_text('\n'.join(locked(wanted)), encoding='utf-8')
        return '--require-hashes', '-r', path

    def check(self):
        """Step 1: what must be there before the first download."""
        self.display.begin('checking Python, disk and compiler')
        cache = wheel_cache.cache_root()
        uv_cache = Path(os.environ.get('UV_CACHE_DIR') or cache.parent / 'uv')
        version = checks.dotted(checks.probe_python(self.base_python))
        site = self.venv / 'lib' / f'python{version}' / 'site-packages'
        size = 1 if (site / 'torch' / 'version.py').exists() else 7
        tag = version.replace('.', '')
        key = f'mmcv-{self.mmcv}_torch-{pinned("torch")}*_cp{tag}_*/*.whl'
        kept = [*(cache / 'wheels').glob(key), *site.glob('mmcv/_ext*')]
        building = self.args.rebuild_mmcv or not (kept or self.args.find_links)
        other = 'XDG_CACHE_HOME=PATH'
        checks.check_folder(self.venv, size, 'environment', '--venv PATH')
        checks.check_folder(uv_cache, size, 'cache of uv', other)
        checks.check_folder(cache, 2 * building, 'cache of wheels', other)
        if building:
            checks.check_compiler(self.base_python)
        self.display.write('mmcv will be compiled' if building else 'done')

    def create(self):
        """Step 2: the folder of the environment, with uv in it."""
        self.display.begin(f'environment {self.venv}')
        asked = self.args.python and checks.probe_python(self.args.python)
        state = venv_state(self.venv, asked)
        # Where an update was cut off, packages may be installed by half.
        self.again = read_stamp(self.venv).get('state') == 'updating'
        if state == 'create':
            shutil.rmtree(self.venv, ignore_errors=True)
            self.venv.mkdir(parents=True)
            write_stamp(self.venv, state='creating')
            self.display.run([self.base_python, '-m', 'venv', self.venv])
        else:
            write_stamp(self.venv, state='updating')
        self.pip('install', '--no-compile', *self.listed('uv'.__eq__))
        config = checks.output_of(self.python, '-m', 'pip', 'config', 'list')
        self.settings = uv_settings(config)
        self.display.write('done')

    def install(self):
        """Step 3: all of the lock file but mmcv."""
        self.display.begin(f'torch {pinned("torch")} and what goes with it')
        if self.again or self.args.force:
            # Not --reinstall: uv would download everything again.
            self.uv('uninstall', *self.listed(lambda name: name != 'uv')[1:])
        for wanted in (lambda name: name not in ('onedl-mmcv', *LATER), LATER.__contains__):
            self.uv('install', *INSTALL, *self.listed(wanted))
        self.display.write('done')

    def install_mmcv(self):
        """Step 4: mmcv, found or built; it counts when nms runs."""
        self.display.begin(f'mmcv {self.mmcv} with its ops')
        described = checks.output_of(self.python, '-c', wheel_cache.DESCRIBE)
        if not described:
            raise SetupError(
                f'torch is installed, but does not import.\n  Fix: see why '
                f'with {self.python} -c "import torch"'
            )
        facts = json.loads(described)
        build, env, note = checks.choose_build(self.args.cuda, facts)
        root = wheel_cache.cache_root() / 'wheels'
        folder = root / wheel_cache.cache_key(self.mmcv, facts, build)

        def try_wheel(*source):
            if source:
                try:
                    self.uv('install', *INSTALL, '--reinstall', *source)
                except SetupError:
                    return f'uv installs none (see {self.display.log})'
            device = 'cpu' if build == 'cpu' else 'cuda'
            return wheel_cache.verify(self.python, self.mmcv, device)

        if not self.args.rebuild_mmcv:
            if not try_wheel():
                return self.display.write('already there, the ops run')
            if self.args.find_links:
                flags = ('--no-index', '--only-binary', 'onedl-mmcv')
                place = ('--find-links', self.args.find_links)
                wanted = f'onedl-mmcv=={self.mmcv}.*'
                trouble = try_wheel(*flags, *place, wanted)
                if not trouble:
                    return self.display.write('a ready wheel, the ops run')
                place = self.args.find_links
                self.display.write(f'no ready wheel of {place}: {trouble}')
        waiting = 'another bootstrap builds the same wheel: waiting'
        lock = root / f'{folder.name}.lock'
        with wheel_cache.hold(lock, lambda: self.display.write(waiting)):
            wheel, trouble = wheel_cache.find(folder)
            if wheel and not self.args.rebuild_mmcv:
                trouble = trouble or try_wheel(wheel)
                if not trouble:
                    return self.display.write('from the cache')
                self.display.write(f'not the cached wheel: {trouble}')
            if note:
                self.display.write(note)
            trouble = try_wheel(self.build(folder, env))
            if trouble:
                shutil.rmtree(folder)
                raise SetupError(
                    f'mmcv is built, but its ops do not run: {trouble}\n'
                    f'  Whole log: {self.display.log}\n  Fix: a compiler and '
                    f'a CUDA that fit torch (CXX, CUDA_HOME), or --cuda off.'
                )
        return self.display.write('built and kept')

    def build(self, folder, env):
        """Build mmcv and keep the wheel; the lock of its key is held."""
        checks.check_compiler(self.base_python)
        place = folder.with_name(f'.build-{folder.name}')
        shutil.rmtree(place, ignore_errors=True)  # left by a killed run
        place.mkdir(parents=True)
        flags = ['-v', '--no-cache-dir', '--no-build-isolation', '--no-deps']
        flags += ['--no-binary', 'onedl-mmcv', '-w', place]
        jobs = os.environ.get('MAX_JOBS') or str(checks.build_jobs())
        env = {'MMCV_WITH_OPS': '1', 'MAX_JOBS': jobs, **env}
        try:
            source = self.listed('onedl-mmcv'.__eq__)
            self.pip('wheel', *flags, *source, TMPDIR=str(place), **env)
            return wheel_cache.store(*place.glob('*.whl'), folder)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def finish(self):
        """Step 5: this checkout, editable; everything imports."""
        self.display.begin('mmrank (editable), and everything imports')
        self.uv('install', *INSTALL, '-e', ROOT)
        self.display.run([self.python, '-c', IMPORTS])
        write_stamp(self.venv, state='ready', digest=digest())
        self.display.write('done')
