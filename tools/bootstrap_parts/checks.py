"""What must be there before anything is downloaded or built.

Each check returns or raises a SetupError that names the problem and the fix.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: Python versions of the reference stack, the preferred one first.
SUPPORTED = ((3, 11), (3, 12), (3, 10))
SUPPORTED_TEXT = 'Python 3.10, 3.11 or 3.12'
PROBE = 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])'


class SetupError(Exception):
    """The environment cannot be made."""


def dotted(version):
    """Return ``(3, 11)`` as ``'3.11'``."""
    return '.'.join(map(str, version))


def output_of(*argv):
    """Return what a command prints; empty when it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired):
        return ''
    return '' if done.returncode else done.stdout.strip()


def probe_python(path):
    """Return the version of an interpreter that can make a venv, or None."""
    match = re.fullmatch(r'(\d+)\.(\d+)', output_of(str(path), '-c', PROBE))
    return tuple(map(int, match.groups())) if match else None


def find_python(asked=None):
    """Return the interpreter asked for, or this one, or one on PATH."""
    names = [shutil.which(f'python{dotted(version)}') for version in SUPPORTED]
    for path in [asked] if asked else [sys.executable, *names]:
        # The shim of a version manager may be on PATH without a Python.
        if path and probe_python(path) in SUPPORTED:
            return path
    tried = asked or f'{sys.executable} ({sys.version.split()[0]}) or on PATH'
    raise SetupError(
        f'No {SUPPORTED_TEXT} with the modules venv and ensurepip at {tried}.'
        f'\n  Fix: sudo apt-get install python3.11-venv python3.11-dev (or '
        f'pyenv, conda, uv), and name it: make env PYTHON=/path/to/python3.11'
    )


def check_folder(path, gigabytes, name, fix):
    """Check that a folder, which need not exist, is writable and has space."""
    parent = Path(path)
    while not parent.exists():
        parent = parent.parent
    try:
        tempfile.TemporaryFile(dir=str(parent)).close()
        free = shutil.disk_usage(parent).free / 1024**3
        trouble = f'needs {gigabytes} GB of disk, {free:.1f} GB are free'
    except OSError as error:
        free, trouble = -1, f'is not writable: {error.strerror}'
    if free < gigabytes:
        raise SetupError(
            f'The folder of the {name}, {path}, {trouble}.\n'
            f'  Fix: make room or make it writable, or choose another: {fix}'
        )


def check_compiler(python):
    """Check that a C++17 program with Python's C headers compiles."""
    code = 'import sysconfig; print(sysconfig.get_paths()["include"])'
    command = os.environ.get('CXX') or shutil.which('g++') or 'c++'
    flags = ['-std=c++17', '-fsyntax-only', '-x', 'c++', '-']
    try:
        trouble = subprocess.run(
            [*command.split(), '-I', output_of(python, '-c', code), *flags],
            input='#include <vector>\n#include <Python.h>\nint main() {}\n',
            capture_output=True,
            text=True,
        )
        trouble = trouble.stderr.splitlines() if trouble.returncode else []
    except OSError as error:
        trouble = [f'error: {error}']
    if trouble:
        reason = next((x for x in trouble if 'error' in x), trouble[-1])
        raise SetupError(
            f'mmcv must be compiled here once, which needs a C++17 compiler '
            f"and Python's C headers, but {command!r} says: {reason}\n"
            f'  Fix: sudo apt-get install g++ python3-dev (python3.11-dev for '
            f'Python 3.11), sudo dnf install gcc-c++ python3-devel or '
            f'xcode-select --install; or set CXX to your compiler; or name a '
            f'place of ready wheels: --find-links FOLDER|URL'
        )


def build_jobs():
    """Return how many compilers of 2 GB fit the cores and the memory."""
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return max(1, min(os.cpu_count() or 1, memory // (2 * 1024**3)))


def choose_build(wish, facts):
    """Choose between ops of mmcv for the CPU and for the GPU.

    Args:
        wish: ``'auto'``, ``'on'`` or ``'off'``.
        facts: What ``wheel_cache.DESCRIBE`` printed.

    Returns:
        ``(build, env, note)``: the name for the cache key, the variables of the build, and a
        sentence for the user (may be empty).
    """
    # An empty list of devices keeps mmcv's setup from choosing by itself.
    cpu = ('cpu', {'CUDA_VISIBLE_DEVICES': '', 'FORCE_CUDA': '0'})
    if wish == 'off' or (wish == 'auto' and not facts['archs']):
        return (*cpu, '')
    home = os.environ.get('CUDA_HOME')
    place = os.path.join(home or '/usr/local/cuda', 'bin')
    nvcc = shutil.which('nvcc', path=None if home is None else place)
    nvcc = nvcc or shutil.which('nvcc', path=place)
    release = output_of(nvcc, '--version') if nvcc else ''
    found = ''.join(re.findall(r'release (\d+)\.', release)) or 'none'
    cuda = facts['torch_cuda'] or 'no CUDA'
    if found == cuda.split('.')[0]:
        archs = os.environ.get('TORCH_CUDA_ARCH_LIST')
        archs = re.sub('[; ]', '-', archs or '-'.join(facts['archs']))
        note = f'the ops are built for the GPU with {nvcc}'
        return f'cuda{cuda}-sm{archs or "default"}', {'FORCE_CUDA': '1'}, note
    trouble = f'torch is built for {cuda}, and the CUDA of nvcc is {found}'
    if wish == 'on':
        raise SetupError(
            f'--cuda on: {trouble}.\n  Fix: install the CUDA toolkit that '
            f'torch is built for and set CUDA_HOME, or use --cuda off.'
        )
    return *cpu, f'GPU found, but detectors cannot run on it: {trouble}'
