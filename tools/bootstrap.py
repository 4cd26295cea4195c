#!/usr/bin/env python3
"""Make the environment of this checkout: one command, standard library only.

It creates ``.venv``, installs the pinned reference stack
(``requirements/lock.txt``), builds mmcv with its ops once and keeps the wheel
in the user's cache, installs mmrank itself in editable mode, and proves that
the result works. ``make demo`` and ``make test`` call it; a second run takes
about a second. Who already has an OpenMMLab environment does not need it:
``pip install -e .`` there.
"""

import argparse
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

if sys.version_info < (3, 8):  # noqa: UP036 (users start it with any)
    sys.exit(f'Start {__file__} with Python 3.10, 3.11 or 3.12.')

from bootstrap_parts import checks, wheel_cache
from bootstrap_parts.checks import SetupError
from bootstrap_parts.environment import ROOT, digest, is_ready
from bootstrap_parts.progress import clock
from bootstrap_parts.steps import Bootstrap

EPILOG = """\
examples:
  python3 tools/bootstrap.py                what `make env` does
  python3 tools/bootstrap.py --check        only look whether it could work
  python3 tools/bootstrap.py --cuda off     mmcv's ops for the CPU only
  XDG_CACHE_HOME=/big/disk python3 tools/bootstrap.py

The first run builds mmcv (about 10 minutes on 2 cores); later ones, and other
checkouts of the same user, take the wheel from ~/.cache/mmrank/wheels and are
done in 3 minutes. It can be interrupted at any time and run again.
"""


def parse_args(argv=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split('\n\n')[0],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        '--venv',
        default=str(ROOT / '.venv'),
        help='folder of the environment (default: .venv in the checkout)',
    )
    parser.add_argument(
        '--python',
        help='interpreter to make it with (default: this one if it is 3.10 '
        'to 3.12, else the first of those on PATH)',
    )
    parser.add_argument(
        '--cuda',
        choices=('auto', 'on', 'off'),
        default='auto',
        help="build mmcv's ops for the GPU (default: auto, when there is one "
        'and a matching nvcc)',
    )
    parser.add_argument(
        '--rebuild-mmcv',
        action='store_true',
        help='rebuild mmcv even if a wheel is in the cache',
    )
    parser.add_argument(
        '--force',
        action='store_true',
        help='go through all steps even if the environment is up to date',
    )
    parser.add_argument(
        '--check',
        action='store_true',
        help='check Python, disk and compiler, install nothing',
    )
    return parser.parse_args(argv)


def lock_path(venv):
    """Return the lock file of an environment; it outlives the folder."""
    name = hashlib.sha256(os.fsencode(Path(venv).absolute())).hexdigest()
    return wheel_cache.cache_root().parent / 'locks' / name[:16]


def make(args):
    """Make the environment unless it is up to date."""
    began = time.monotonic()
    python = args.python or checks.find_python()
    found = checks.probe_python(python)
    if found is None or not checks.is_supported(found):
        raise SetupError(
            f'--python {python} is not a Python 3.10, 3.11 or 3.12 with the '
            'modules venv and ensurepip.\n  Fix: pass another one, or remove '
            '--python.'
        )

    def waiting():
        sys.stdout.write(
            f'Another bootstrap works on {args.venv}: waiting for it.\n'
        )

    with wheel_cache.locked(lock_path(args.venv), waiting) as lock:
        hurried = args.force or args.rebuild_mmcv or args.check
        if not hurried and is_ready(args.venv, digest()):
            return 0
        bootstrap = Bootstrap(args, python, lock.fileno())
        try:
            if args.check:
                bootstrap.display.steps = 1
                bootstrap.check()
                return 0
            bootstrap.run()
        finally:
            bootstrap.stop()
    sys.stdout.write(
        f'The environment is ready after {clock(time.monotonic() - began)}: '
        f'source {args.venv}/bin/activate\n'
    )
    return 0


def raise_interrupt(number, frame):
    """Treat a request to end as Ctrl-C."""
    raise KeyboardInterrupt(number)


def main(argv=None):
    """Run; return the exit status."""
    args = parse_args(argv)
    if os.name != 'posix':
        sys.stderr.write(
            'The bootstrap works on Linux and macOS.\n  Fix: use WSL 2, or '
            'install into your own OpenMMLab environment: pip install -e .\n'
        )
        return 1
    signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        return make(args)
    except SetupError as error:
        sys.stderr.write(f'\nerror: {error}\n')
        return 1
    except KeyboardInterrupt as error:
        sys.stderr.write(
            '\nInterrupted. Nothing half-made is kept: run it again to go '
            'on from here.\n'
        )
        return 143 if error.args == (signal.SIGTERM,) else 130


if __name__ == '__main__':
    sys.exit(main())
