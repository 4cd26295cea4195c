#!/usr/bin/env python3
"""Make the environment of this checkout with uv: the pinned reference stack in ``.venv``.

Each package matches its hash in ``requirements/lock.txt`` (``uv.lock`` would name one index). mmcv
has no wheel on PyPI: it is compiled once, and kept in ``~/.cache/mmrank/wheels``. An environment
of another ``--lock`` has no mmcv.
"""

import argparse
import ast
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / 'requirements' / 'lock.txt'
CACHE = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache').absolute() / 'mmrank'
FLAGS = ('--no-deps', '--no-build-isolation')
# The first two are built against torch, the third overwrites files of opencv-python.
LATER = ('onedl-mmdetection', 'onedl-mmpretrain', 'opencv-python-headless')
PIP = ('index-url', 'extra-index-url', 'find-links', 'trusted-host', 'cert', 'proxy')
UV = 'UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_INSECURE_HOST SSL_CERT_FILE ALL_PROXY'
# What a wheel of mmcv depends on, and the GPUs of this machine.
FACTS = """import sys, sysconfig, torch
platform = sysconfig.get_platform().replace('_', '-')
print('torch-%s_cp%d%d_%s' % (torch.__version__, *sys.version_info[:2], platform))
print(torch.cuda.is_available() and 'sm%d%d' % torch.cuda.get_device_capability() or '')
"""
# The flags of each file of mmcv beside CFLAGS.
FLAGS_OF_FILES = """import sysconfig, torch.utils.cpp_extension as torch
paths = [*torch.include_paths(), sysconfig.get_paths()['include']]
print(sysconfig.get_config_var('CCSHARED'), '-std=c++17', *('-I' + path for path in paths))
"""
# A wheel for another torch installs without a word and fails at its first op.
VERIFY = """import sys, mmcv.ops, torch
boxes = torch.tensor([[0., 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]], device=sys.argv[1])
assert mmcv.ops.nms(boxes, boxes[:, 2], iou_threshold=0.5)[1].tolist() == [2, 1], 'nms is wrong'
assert (mmcv.__version__ + '.').startswith(sys.argv[2] + '.'), mmcv.__version__
"""


def run(*command, **env):
    """Run a command; CalledProcessError where it fails. Locks pass on to it."""
    subprocess.run([*map(str, command)], check=True, close_fds=False, env={**os.environ, **env})


def output(*command):
    """Return what a command prints; empty where it fails."""
    found = os.path.exists(command[0]) and subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() if found else ''


def pins(folder, wanted, lock=None):
    """Write the locked requirements whose names are wanted; return pip's options for them."""
    lines = (lock or LOCK).read_text(encoding='utf-8').replace('\\\n', ' ').splitlines()
    path = folder / 'pins.txt'
    path.write_text('\n'.join(x for x in lines if wanted(x.split('==')[0])), encoding='utf-8')
    return '--require-hashes', '-r', path


def uv_settings(pip_config):
    """Return the variables that tell uv what ``pip config list`` printed."""
    found = {'UV_INDEX_STRATEGY': 'unsafe-best-match', 'UV_SYSTEM_CERTS': '1'}
    sections = 'global.', 'install.', ':env:.'  # the last one counts
    for line in (x for s in sections for x in pip_config.splitlines() if x.startswith(s)):
        key, _, value = line.partition('.')[2].partition('=')
        if key in PIP:
            words = ast.literal_eval(value).split()
            if key == 'find-links':  # pip skips absent folders
                words = [','.join(x for x in words if '://' in x or os.path.exists(x))]
            found[UV.split()[PIP.index(key)]] = ' '.join(words)
    return {key: value for key, value in found.items() if value and key not in os.environ}


def read_headers_once(python, folder, cflags):
    """Return the variables of a compilation in which g++ reads torch's headers once, where it can.

    They take three quarters of the time of a file of mmcv. What g++ made with other flags than
    those of a file is not used there.
    """
    header = folder / 'torch.hpp'
    header.write_text('#include <torch/types.h>\n')
    command = ['g++', *cflags.split(), *output(python, '-c', FLAGS_OF_FILES).split()]
    if sys.platform == 'linux' and 'CXX' not in os.environ:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            run(*command, '-x', 'c++-header', header, '-o', f'{header}.gch')
            return {'CXX': 'g++', 'CFLAGS': f'{cflags} -include {header}'}
    return {'CFLAGS': cflags}


def install_mmcv(args, python, uv):
    """Install mmcv from ``--find-links``, the cache or its source; it counts when nms runs."""
    mmcv = pins(args.venv, 'onedl-mmcv'.__eq__)
    version = mmcv[-1].read_text().split()[0].split('==')[1]
    facts, gpu = (output(python, '-c', FACTS) + '\n').split('\n')[:2]
    gpu = gpu if args.cuda == 'on' or (args.cuda == 'auto' and shutil.which('nvcc')) else ''
    folder = CACHE / 'wheels' / f'mmcv-{version}_{facts}_{gpu or "cpu"}'
    part = folder.with_name(f'.{folder.name}.part')
    env = {'FORCE_CUDA': '1'} if gpu else {'FORCE_CUDA': '0', 'CUDA_VISIBLE_DEVICES': ''}
    # Python's own but -g: what a debugger reads takes two fifths of the time.
    cflags = f'-O3 -DNDEBUG -fwrapv -g0 {os.environ.get("CFLAGS", "")}'

    # uv has no hash of a local version, such as 2.3.6+cu130.
    pip = python, '-m', 'pip', 'install', '--no-deps', '--force-reinstall'

    def install(*source):
        run(*(pip if '--require-hashes' in source else (*uv, '--reinstall')), *source)
        run(python, '-c', VERIFY, 'cuda' if gpu else 'cpu', version)

    links = '--no-index', '--find-links', args.find_links, f'onedl-mmcv=={version}.*'
    if args.sha256:
        pin = args.venv / 'mmcv.txt'
        pin.write_text(f'onedl-mmcv=={version} --hash=sha256:{args.sha256}\n')
        links = *links[:-1], '--require-hashes', '-r', pin
    for source in [links, *([x] for x in folder.glob('*.whl'))][not args.find_links :]:
        with contextlib.suppress(subprocess.CalledProcessError):
            return install(*source)
    print('Compiling mmcv (6 minutes of CPU time) ...', flush=True)
    shutil.rmtree(part, ignore_errors=True)
    flags = *FLAGS, '--no-cache-dir', '--no-binary', 'onedl-mmcv'
    command = python, '-m', 'pip', 'wheel', '-v', *flags, *mmcv, '-w', part
    jobs = min(os.cpu_count(), os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 31)
    with tempfile.TemporaryDirectory(dir=args.venv) as temp:
        env |= read_headers_once(python, Path(temp), cflags)
        run(*command, **{'MMCV_WITH_OPS': '1', 'MAX_JOBS': str(max(jobs, 1)), **env})
    install(*part.glob('*.whl'))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(part, folder)


def make(args):
    """Make the environment, or bring it up to date."""
    python, stamp = args.venv / 'bin' / 'python', args.venv / 'mmrank-bootstrap.txt'
    lock = args.lock or LOCK
    whole = not (args.lock or args.torch_alone)
    wanted = f'{ROOT}\n{lock.read_text(encoding="utf-8")}' + 'torch alone' * args.torch_alone
    modules = ('torch', 'mmrank', *(('mmcv',) if whole else ()))
    find = f'import importlib.util as u; print(all(map(u.find_spec, {modules})))'
    if stamp.is_file() and stamp.read_text() == wanted and output(python, '-c', find) == 'True':
        return
    stamp.unlink(missing_ok=True)
    if not output(python, '-c', 'print(1)'):
        run(sys.executable, '-m', 'venv', args.venv)
    run(python, '-m', 'pip', 'install', '-q', *pins(args.venv, 'uv'.__eq__, lock))
    os.environ.update(uv_settings(output(python, '-m', 'pip', 'config', 'list')))
    uv = args.venv / 'bin' / 'uv', 'pip', 'install', '-p', python, *FLAGS
    if args.torch_alone:
        # uv takes version and hash of each package from the lock file.
        run(*uv[: -len(FLAGS)], '-r', ROOT / 'requirements' / 'runtime.txt', '-c', lock)
    else:
        later = ('onedl-mmcv', *LATER) if whole else ()
        run(*uv, *pins(args.venv, lambda name: name not in later, lock))
    if whole:
        run(*uv, *pins(args.venv, LATER.__contains__))
        install_mmcv(args, python, uv)
    run(*uv, '-e', ROOT)
    checked = 'mmengine, mmcv, mmdet, mmpretrain, mmrank.registry' if whole else 'mmrank.losses'
    run(python, '-c', f'import {checked}')
    stamp.write_text(wanted)
    print(f'Ready: source "{args.venv}/bin/activate"')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--venv', default=ROOT / '.venv', type=Path, help='default: .venv')
    parser.add_argument('--lock', type=Path, help='of an environment without mmcv')
    parser.add_argument('--find-links', metavar='FOLDER|URL', help='ready wheels of mmcv')
    parser.add_argument('--sha256', help='of the wheel of --find-links; another one is not taken')
    parser.add_argument('--cuda', choices=('auto', 'on', 'off'), default='auto', help='ops of mmcv')
    parser.add_argument('--torch-alone', action='store_true', help='for losses: no OpenMMLab')
    args = parser.parse_args()
    newest = (3, 14) if args.lock else (3, 13)
    if not (3, 10) <= sys.version_info[:2] <= newest:
        sys.exit('This needs Python 3.10 to 3.13.\n  Fix: make env PYTHON=python3.11')
    args.venv = args.venv.absolute()
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / 'bootstrap.lock', 'a') as lock:
            os.set_inheritable(lock.fileno(), True)  # a child may outlive a killed parent
            fcntl.flock(lock, fcntl.LOCK_EX)
            make(args)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f'error: {str(error)[:400]}\n  Fix: what it names: the network, a full disk, g++ and '
            'python3-dev, --cuda off, other folders (--venv PATH, XDG_CACHE_HOME=PATH for caches).'
        )
    except KeyboardInterrupt:
        sys.exit('Interrupted. Run it again to go on.')


if __name__ == '__main__':
    main()
