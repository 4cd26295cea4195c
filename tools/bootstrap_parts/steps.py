"""The steps of the bootstrap, in order."""

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

from . import checks, cuda, wheel_cache
from .checks import SetupError
from .environment import (
    LOCK,
    ROOT,
    digest,
    pinned,
    remove_half_installed,
    venv_python,
    venv_state,
    write_stamp,
)
from .progress import Display, Task

#: Installed first: the builds of mmcv and mmdet import them.
BUILD_TOOLS = ('torch', 'torchvision', 'setuptools', 'wheel', 'ninja')
IMPORTS = 'import mmengine, mmcv, mmdet, mmpretrain, mmrank.registry'
STEPS = 7


class Bootstrap:
    """The steps, in order, with the processes they started.

    Args:
        args: The command line.
        python: Interpreter to make the environment with.
        lock_fd: File descriptor of the held lock, for the children.
    """

    def __init__(self, args, python, lock_fd):
        self.args = args
        self.base_python = python
        self.lock_fd = lock_fd
        self.venv = Path(args.venv).absolute()
        self.python = venv_python(self.venv)
        self.display = Display(STEPS)
        self.tasks = []
        self.mmcv = pinned('onedl-mmcv')

    def task(self, argv, log='bootstrap.log', env=None):
        """Start a command that is ended when this script is."""
        quiet = {'PIP_DISABLE_PIP_VERSION_CHECK': '1', 'PIP_NO_INPUT': '1'}
        task = Task(
            argv, self.venv / log, {**quiet, **(env or {})}, (self.lock_fd,)
        )
        self.tasks.append(task)
        return task

    def pip(self, *argv, **kwargs):
        """Start pip in the environment."""
        return self.task(
            [self.python, '-m', 'pip', *argv, '--progress-bar', 'off'],
            **kwargs,
        )

    def install(self, *argv, **kwargs):
        """Install with pip and wait."""
        # Modules are compiled when they are first imported: that is faster
        # than compiling all of torch now.
        task = self.pip('install', '--no-compile', *argv)
        self.display.wait(task, **kwargs)

    def run(self):
        """Go through all steps."""
        self.check()
        self.create()
        self.install_torch()
        with contextlib.ExitStack() as stack:
            folder, build, env = self.wheel_place()
            task = None
            works = not wheel_cache.verify(self.python, self.mmcv)
            if not works or self.args.rebuild_mmcv:
                task = self.begin_build(stack, folder, env)
            self.install_rest(task)
            self.install_mmcv(task, folder, env, works)
        self.install_mmrank()
        self.verify()
        write_stamp(
            self.venv,
            state='ready',
            digest=digest(),
            python=checks.version_text(checks.probe_python(str(self.python))),
            mmcv_ops=build,
        )

    def check(self):
        """Step 1: what must be there before the first download."""
        self.display.begin('checking Python, disk and compiler')
        tag = checks.probe_python(self.base_python)
        have_torch = bool(
            list(self.venv.glob('lib/python*/site-packages/torch/version.py'))
        )
        needs = [(self.venv, checks.VENV_BYTES // (6 if have_torch else 1))]
        root = wheel_cache.cache_root()
        cached = wheel_cache.may_be_cached(
            root, self.mmcv, pinned('torch'), 'cp{}{}'.format(*tag)
        )
        built = list(self.venv.glob('lib/python*/site-packages/mmcv/_ext*'))
        building = self.args.rebuild_mmcv or not (cached or built)
        if building:
            needs.append((root, checks.BUILD_BYTES))
        checks.check_disk(needs)
        if building:
            checks.check_compiler()
            checks.check_headers(self.base_python)
        self.display.done(
            f'Python {checks.version_text(tag)}, '
            + ('mmcv will be built (once)' if building else 'mmcv is built')
        )

    def create(self):
        """Step 2: the environment's folder."""
        self.display.begin(f'environment {self.venv}')
        asked = None
        if self.args.python:
            asked = checks.probe_python(self.args.python)
        if venv_state(self.venv, asked) == 'use':
            found = remove_half_installed(self.venv)
            for name in found:
                self.display.note(f'removed the half-installed {name}')
            write_stamp(self.venv, state='making')
            self.display.done('already there')
            return
        if self.venv.exists():
            shutil.rmtree(self.venv)
        self.venv.mkdir(parents=True)
        write_stamp(self.venv, state='making')
        task = self.task([self.base_python, '-m', 'venv', self.venv])
        self.display.wait(task)
        self.display.done()

    def install_torch(self):
        """Step 3: torch and what the builds need."""
        self.display.begin(f'torch {pinned("torch")} and build tools')
        self.install('-c', LOCK, *BUILD_TOOLS)
        self.display.done()

    def wheel_place(self):
        """Return the cache folder, the build's kind and its variables."""
        done = subprocess.run(
            [str(self.python), '-c', wheel_cache.DESCRIBE],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise SetupError(
                f'torch was installed but does not import:\n{done.stderr}\n'
                f'  Fix: rm -rf {self.venv} and run again.'
            )
        facts = json.loads(done.stdout)
        build, env, note = cuda.choose_build(self.args.cuda, facts)
        if note:
            self.display.note(note)
        key = wheel_cache.cache_key(
            self.mmcv,
            facts['torch'],
            facts['python'],
            facts['platform'],
            build,
        )
        return wheel_cache.cache_root() / key, build, env

    def begin_build(self, stack, folder, env):
        """Start the build of mmcv unless its wheel is in the cache."""
        stack.enter_context(
            wheel_cache.locked(
                folder.parent / f'{folder.name}.lock',
                lambda: self.display.note(
                    'another bootstrap builds the same mmcv wheel: waiting'
                ),
            )
        )
        if self.args.rebuild_mmcv:
            wheel_cache.drop(folder)
        if wheel_cache.find(folder) is not None:
            return None
        return self.build(stack, folder, env)

    def build(self, stack, folder, env):
        """Start the build of mmcv; the lock of its key is held."""
        # The compiler check came first, but with a wheel in the cache for
        # another GPU it was skipped.
        checks.check_compiler()
        checks.check_headers(self.base_python)
        place = folder.parent / f'.build-{folder.name}'
        # Left by a killed run; the lock ensures that it is unused.
        shutil.rmtree(place, ignore_errors=True)
        (place / 'tmp').mkdir(parents=True)
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        stack.callback(self.stop)
        return self.pip(
            'wheel',
            '-v',
            '--no-cache-dir',
            '--no-build-isolation',
            '--no-deps',
            '-w',
            place / 'wheel',
            f'onedl-mmcv=={self.mmcv}',
            log='mmcv-build.log',
            env={
                'MMCV_WITH_OPS': '1',
                'MAX_JOBS': str(checks.build_jobs()),
                'TMPDIR': str(place / 'tmp'),
                **env,
            },
        )

    def install_rest(self, build):
        """Step 4: everything in the lock file but mmcv and torch."""
        self.display.begin('the pinned packages')
        lines = LOCK.read_text(encoding='utf-8').splitlines()
        rest = self.venv / 'lock-without-mmcv.txt'
        rest.write_text(
            '\n'.join(x for x in lines if not x.startswith('onedl-mmcv==')),
            encoding='utf-8',
        )
        # mmdet's source needs the setuptools that is pinned here and imports
        # torch while it is built: no isolated build.
        self.install(
            '--no-build-isolation',
            '-r',
            rest,
            beside=build,
            beside_name='mmcv build',
        )
        self.mend_opencv()
        self.display.done()

    def mend_opencv(self):
        """Install the headless OpenCV on a server without libGL.

        Two distributions of OpenCV come in as dependencies and write the
        same files, so the one that is installed last counts.
        """
        code = [str(self.python), '-c', 'import cv2']
        if subprocess.run(code, capture_output=True).returncode == 0:
            return
        name = 'opencv-python-headless'
        self.install(
            '--force-reinstall', '--no-deps', f'{name}=={pinned(name)}'
        )
        done = subprocess.run(code, capture_output=True, text=True)
        if done.returncode != 0:
            trouble = done.stderr.strip().splitlines()[-1]
            raise SetupError(
                f'OpenCV does not import: {trouble}\n'
                f'  Fix: sudo apt-get install libgl1 libglib2.0-0, then run '
                f'again.'
            )
        self.display.note('no libGL here: took the headless OpenCV')

    def install_mmcv(self, task, folder, env, works):
        """Step 5: the built mmcv, from this build or from the cache."""
        self.display.begin(f'mmcv {self.mmcv} with its ops')
        if works and task is None and not self.args.rebuild_mmcv:
            self.display.done('already there, the ops run')
            return
        fresh = task is not None
        if fresh:
            self.finish_build(task, folder)
        trouble = self.try_wheel(folder)
        if trouble and not fresh:
            self.display.note(
                f'the cached wheel does not run ({trouble}): rebuilding'
            )
            wheel_cache.drop(folder)
            # The lock of the key is still held by the caller.
            with contextlib.ExitStack() as stack:
                self.finish_build(self.build(stack, folder, env), folder)
            fresh = True
            trouble = self.try_wheel(folder)
        if trouble:
            wheel_cache.drop(folder)
            raise SetupError(
                f'mmcv was built but its ops do not run: {trouble}\n'
                f'  Whole log of the build: {self.venv}/mmcv-build.log\n'
                f'  Fix: check that compiler and torch fit together (CXX, '
                f'CUDA_HOME), or try --cuda off.'
            )
        self.display.done('built and kept' if fresh else 'from the cache')

    def finish_build(self, task, folder):
        """Wait for a build and keep its wheel."""
        self.display.wait(task)
        wheel = wheel_cache.find(
            folder.parent / f'.build-{folder.name}' / 'wheel'
        )
        if wheel is None:
            raise SetupError(
                f'pip built no wheel of mmcv.\n  Whole log: {task.log}'
            )
        wheel_cache.store(wheel, folder)

    def try_wheel(self, folder):
        """Install the kept wheel; return the trouble with its ops, if any."""
        wheel = wheel_cache.find(folder)
        self.install('--force-reinstall', '--no-deps', wheel)
        return wheel_cache.verify(self.python, self.mmcv)

    def install_mmrank(self):
        """Step 6: this checkout, in editable mode."""
        self.display.begin('mmrank itself (editable)')
        self.install('--no-build-isolation', '--no-deps', '-e', ROOT)
        self.display.done()

    def verify(self):
        """Step 7: everything imports."""
        self.display.begin('verifying: nms runs, everything imports')
        trouble = wheel_cache.verify(self.python, self.mmcv)
        if not trouble:
            task = self.task([self.python, '-c', IMPORTS])
            self.display.wait(task)
        else:
            raise SetupError(
                f'mmcv.ops.nms does not run: {trouble}\n'
                f'  Fix: run again with --rebuild-mmcv.'
            )
        self.display.done()

    def stop(self):
        """End every process that still runs."""
        for task in self.tasks:
            if task.running():
                task.kill()
