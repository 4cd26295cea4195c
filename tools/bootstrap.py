#!/usr/bin/env python3
"""Make the environment of this checkout: one command, standard library only.

It creates ``.venv``, installs the pinned reference stack (``requirements/lock.txt``) with uv, takes
a ready wheel of mmcv or builds one and keeps it in the user's cache, installs mmrank itself in
editable mode, and proves that the result works. ``make demo`` and ``make test`` call it; a second
run takes about a second. In an OpenMMLab environment of your own, use
``pip install -e .`` instead.
"""

import argparse
import errno
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

if sys.version_info < (3, 8):  # noqa: UP036 (users start it with any)
    sys.exit('Start ' + __file__ + ' with Python 3.8 or later.')

from bootstrap_parts import steps, wheel_cache
from bootstrap_parts.checks import SUPPORTED_TEXT, SetupError
from bootstrap_parts.progress import clock

EPILOG = """\
Compiling mmcv takes about 10 minutes on 2 cores. Its wheel is kept in
~/.cache/mmrank/wheels (under XDG_CACHE_HOME if that is set), so that other
checkouts are ready in a minute. A wheel that others built saves it:
  python3 tools/bootstrap.py --find-links FOLDER|URL
Indexes, certificates and proxies of pip's settings count for uv too.
"""


def parse_args(argv=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split('\n\n')[0],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    text = 'folder of the environment (default: .venv in the checkout)'
    add('--venv', default=steps.ROOT / '.venv', type=Path, help=text)
    text = f'{SUPPORTED_TEXT} (default: this one, else one on PATH)'
    add('--python', help=text)
    text = "where a wheel of mmcv's ops is looked for before one is compiled"
    add('--find-links', metavar='FOLDER|URL', help=text)
    text = "mmcv's ops for the GPU (default: if there is one, and nvcc fits)"
    add('--cuda', choices=('auto', 'on', 'off'), default='auto', help=text)
    text = 'compile mmcv even if there is a wheel of it'
    add('--rebuild-mmcv', action='store_true', help=text)
    text = 'reinstall all, even if the environment is up to date'
    add('--force', action='store_true', help=text)
    text = 'only look whether it could work: Python, disk, compiler'
    add('--check', action='store_true', help=text)
    args = parser.parse_args(argv)
    args.venv = args.venv.absolute()
    return args


def make(args):
    """Make the environment unless it is up to date."""
    began = time.monotonic()
    hurried = args.force or args.rebuild_mmcv or args.check
    if not hurried and steps.is_ready(args.venv):
        return
    # The lock outlives the folder that it guards.
    name = hashlib.sha256(os.fsencode(args.venv)).hexdigest()[:16]
    waiting = f'Another bootstrap works on {args.venv}: waiting for it.'
    lock = wheel_cache.cache_root() / 'locks' / name
    with wheel_cache.hold(lock, lambda: print(waiting, flush=True)) as file:
        if not hurried and steps.is_ready(args.venv):
            return
        bootstrap = steps.Bootstrap(args, file.fileno())
        bootstrap.check()
        if args.check:
            return
        bootstrap.create()
        bootstrap.install()
        bootstrap.install_mmcv()
        bootstrap.finish()
    spent = clock(time.monotonic() - began)
    print(f'Ready after {spent}: source "{args.venv}/bin/activate"')


def interrupt(number, frame):
    """Treat a request to end as Ctrl-C."""
    raise KeyboardInterrupt(number)


def main(argv=None):
    """Run; return the exit status."""
    args = parse_args(argv)
    # The imports that prove the environment also compile it: keep the result.
    os.environ.pop('PYTHONDONTWRITEBYTECODE', None)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        if os.name != 'posix':
            raise SetupError('This is not Linux or macOS.\n  Fix: use WSL 2.')
        make(args)
    except SetupError as error:
        message = str(error)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = 'free some disk space' if full else 'make it writable'
        message = (
            f'{error.filename or "a file"} cannot be written: {error.strerror}.\n  Fix: {fix}, or '
            'choose other folders with --venv PATH (environment) and XDG_CACHE_HOME=PATH (caches).'
        )
    except KeyboardInterrupt as error:
        sys.stderr.write('\nInterrupted. Run it again to go on.\n')
        return 143 if error.args == (signal.SIGTERM,) else 130
    else:
        return 0
    sys.stderr.write(f'\nerror: {message}\n')
    return 1


if __name__ == '__main__':
    sys.exit(main())
