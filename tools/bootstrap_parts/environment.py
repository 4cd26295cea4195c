"""The folder of the environment: its stamp, its state, its lock file."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from . import checks
from .checks import SetupError

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / 'requirements' / 'lock.txt'
#: Raise it when an environment made by an older version must be redone.
FORMAT = 1
STAMP = 'mmrank-bootstrap.json'


def pinned(name, text=None):
    """Return the version that the lock file pins for a package."""
    text = LOCK.read_text(encoding='utf-8') if text is None else text
    match = re.search(rf'^{re.escape(name)}==(\S+)', text, re.MULTILINE)
    if match is None:
        raise SetupError(f'{LOCK} pins no version of {name}.')
    return match.group(1)


def digest(lock=None, root=ROOT):
    """Return what an up-to-date environment was made from, as a hash."""
    lock = LOCK.read_bytes() if lock is None else lock
    text = b'%d\0%s\0%s' % (FORMAT, os.fsencode(root), lock)
    return hashlib.sha256(text).hexdigest()


def read_stamp(venv):
    """Return the stamp's fields; none when it is absent or torn."""
    try:
        return json.loads((Path(venv) / STAMP).read_text(encoding='utf-8'))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}


def write_stamp(venv, **fields):
    """Replace the stamp in one go."""
    part = Path(venv) / (STAMP + '.part')
    part.write_text(json.dumps(fields, indent=1) + '\n', encoding='utf-8')
    os.replace(part, Path(venv) / STAMP)


def venv_python(venv):
    """Return the path of the environment's interpreter."""
    return Path(venv) / 'bin' / 'python'


def is_ready(venv, wanted):
    """Return whether an environment is whole and up to date."""
    stamp = read_stamp(venv)
    if stamp.get('state') != 'ready' or stamp.get('digest') != wanted:
        return False
    code = (
        'import importlib.util as u, sys; sys.exit(not all(u.find_spec(n) '
        'for n in ("torch", "mmcv", "mmdet", "mmrank")))'
    )
    try:
        done = subprocess.run([str(venv_python(venv)), '-c', code])
    except OSError:
        return False
    return done.returncode == 0


def remove_half_installed(venv):
    """Remove the metadata of packages whose installation was cut off.

    pip writes ``RECORD`` last: without it the package may be half there, yet
    pip would take it for installed.

    Returns:
        Names of what was removed.
    """
    found = []
    for folder in Path(venv).glob('lib/python*/site-packages/*.dist-info'):
        if not (folder / 'RECORD').is_file():
            shutil.rmtree(folder)
            found.append(folder.name)
    return found


def venv_state(venv, asked):
    """Decide what to do with the folder of the environment.

    Args:
        venv: The folder.
        asked: Version that the user asked for, or ``None``.

    Returns:
        ``'use'`` or ``'create'`` (after removing one that a cut-off run of
        this script left).

    Raises:
        SetupError: The folder was made by others and cannot be used.
    """
    venv = Path(venv)
    if not venv.exists() or not any(venv.iterdir()):
        return 'create'
    found = checks.probe_python(str(venv_python(venv)))
    fix = f'  Fix: rm -rf {venv}, or choose another folder with --venv PATH.'
    if found is not None and checks.is_supported(found):
        if asked is not None and asked != found:
            raise SetupError(
                f'{venv} is an environment of Python '
                f'{checks.version_text(found)}, but --python requests '
                f'{checks.version_text(asked)}.\n'
                f'{fix}'
            )
        return 'use'
    if read_stamp(venv):
        return 'create'
    raise SetupError(
        f'{venv} exists but is not a working environment of Python 3.10, 3.11 '
        'or 3.12, and this script did not create it.\n'
        f'{fix}'
    )
