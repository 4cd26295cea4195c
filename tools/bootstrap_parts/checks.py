"""What must be there before anything is downloaded.

Each check returns normally or raises :class:`SetupError`, whose message names
the problem and the fix.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

#: Python versions of the reference stack, the preferred one first.
SUPPORTED = ((3, 11), (3, 12), (3, 10))
#: Space of the environment, in bytes: torch and its CUDA libraries lead.
VENV_BYTES = 6 * 1024**3
#: Space of the mmcv build, in bytes.
BUILD_BYTES = 2 * 1024**3
#: Memory of one compiler process of the mmcv build, in bytes.
JOB_BYTES = 2 * 1024**3

PROBE = 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])'


class SetupError(Exception):
    """The environment cannot be made; the message names reason and fix."""


def version_text(version):
    """Return ``(3, 11)`` as ``'3.11'``."""
    return '.'.join(str(part) for part in version[:2])


def is_supported(version):
    """Return whether a ``(major, minor, ...)`` version is supported."""
    return tuple(version[:2]) in SUPPORTED


def probe_python(executable):
    """Return ``(major, minor)`` of an interpreter that can make a venv.

    Args:
        executable: Path of the interpreter.

    Returns:
        The version, or ``None`` when it does not start (a shim of a version
        manager without that version) or lacks ``venv`` or ``ensurepip``.
    """
    try:
        done = subprocess.run(
            [executable, '-c', PROBE],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    parts = done.stdout.strip().split('.')
    if done.returncode != 0 or len(parts) != 2:
        return None
    return int(parts[0]), int(parts[1])


def find_python(current=None, running=None):
    """Choose the interpreter that makes the environment.

    Args:
        current: The interpreter that runs this script.
        running: Its version.

    Returns:
        ``current`` when it will do, else the first that works of
        ``python3.11``, ``python3.12`` and ``python3.10`` on ``PATH``.

    Raises:
        SetupError: None of them works.
    """
    current = current or sys.executable
    running = running or sys.version_info[:2]
    if is_supported(running) and probe_python(current) is not None:
        return current
    for version in SUPPORTED:
        path = shutil.which('python' + version_text(version))
        if path is not None and probe_python(path) == version:
            return path
    wanted = ', '.join(sorted(version_text(v) for v in SUPPORTED))
    if is_supported(running):
        reason = (
            f'Python {version_text(running)} ({current}) lacks the modules '
            f'venv or ensurepip.'
        )
        fix = f'sudo apt-get install python{version_text(running)}-venv'
    else:
        reason = (
            f'This is Python {version_text(running)} ({current}); the '
            f'reference stack needs one of {wanted}, and no working one is '
            f'on PATH.'
        )
        fix = (
            'sudo apt-get install python3.11 python3.11-venv python3.11-dev '
            '(or pyenv, conda, uv)'
        )
    raise SetupError(
        f'{reason}\n  Fix: {fix}, then run again, or name an interpreter: '
        f'make env PYTHON=/path/to/python3.11'
    )


def existing_parent(path):
    """Return the nearest folder at or above ``path`` that exists."""
    path = Path(path).absolute()
    while not path.exists():
        path = path.parent
    return path


def check_disk(needs):
    """Check the free space of every file system that will be written to.

    Args:
        needs: Pairs ``(path, bytes)``; those on one file system add up.

    Raises:
        SetupError: One of them has too little.
    """
    totals = {}
    for path, size in needs:
        parent = existing_parent(path)
        device = os.stat(parent).st_dev
        first, total = totals.get(device, (parent, 0))
        totals[device] = (first, total + size)
    for parent, total in totals.values():
        free = shutil.disk_usage(parent).free
        if free < total:
            raise SetupError(
                f'Too little disk: {total / 1024**3:.1f} GB are needed on '
                f'the disk of {parent}, {free / 1024**3:.1f} GB are free.\n'
                f'  Fix: free some space, or put the environment elsewhere '
                f'(--venv PATH) and the cache of built wheels too '
                f'(XDG_CACHE_HOME=PATH).'
            )


def compiler():
    """Return the C++ compiler's command that the build will call."""
    return os.environ.get('CXX') or shutil.which('g++') or 'c++'


def check_compiler():
    """Check that a C++17 program with standard headers compiles.

    Raises:
        SetupError: There is no compiler or it does not work.
    """
    command = compiler()
    source = '#include <vector>\nint main() { std::vector<int> v; }\n'
    flags = ['-std=c++17', '-fsyntax-only', '-x', 'c++', '-']
    try:
        done = subprocess.run(
            [*command.split(), *flags],
            input=source,
            capture_output=True,
            text=True,
            timeout=60,
        )
        trouble = done.stderr.strip() if done.returncode else ''
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = str(error)
    if trouble:
        raise SetupError(
            f'No working C++ compiler: {command!r} failed with: '
            f'{trouble.splitlines()[-1]}\n'
            f'  mmcv has no ready wheel with its ops for this torch, so it is '
            f'built here once.\n'
            f'  Fix: sudo apt-get install g++ (Debian, Ubuntu), sudo dnf '
            f'install gcc-c++ (Fedora), xcode-select --install (macOS); or '
            f'set CXX to your compiler.'
        )


def check_headers(python):
    """Check that the C headers of an interpreter are installed.

    Args:
        python: Path of the interpreter.

    Raises:
        SetupError: ``Python.h`` is not where the interpreter expects it.
    """
    code = 'import sysconfig; print(sysconfig.get_paths()["include"])'
    if os.path.realpath(python) == os.path.realpath(sys.executable):
        include = sysconfig.get_paths()['include']
    else:
        done = subprocess.run(
            [python, '-c', code], capture_output=True, text=True, check=True
        )
        include = done.stdout.strip()
    if not os.path.isfile(os.path.join(include, 'Python.h')):
        version = probe_python(python) or sys.version_info[:2]
        raise SetupError(
            f'The C headers of Python are missing: no Python.h in {include}; '
            f'the build of mmcv needs it.\n'
            f'  Fix: sudo apt-get install python{version_text(version)}-dev '
            f'(Debian, Ubuntu), sudo dnf install python3-devel (Fedora).'
        )


def build_jobs():
    """Return how many compilers fit the cores and the memory, at least 1."""
    if hasattr(os, 'sched_getaffinity'):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    except (ValueError, OSError, AttributeError):
        return cores
    return max(1, min(cores, int(memory // JOB_BYTES)))
