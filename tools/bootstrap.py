#!/usr/bin/env python3
"""Make the environment of this checkout with uv: the pinned reference stack in ``.venv``.

Each package matches its hash in ``requirements/lock.txt`` (``uv.lock`` would name one index).
Nothing is compiled: mmrank has mmcv's operators on torch and torchvision (``mmrank.mmcv_ops``).
"""

import argparse
import ast
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / 'requirements' / 'lock.txt'
FLAGS = ('--no-deps', '--no-build-isolation')
# The first two are built against torch, the third overwrites files of opencv-python.
LATER = ('onedl-mmdetection', 'onedl-mmpretrain', 'opencv-python-headless')
PIP = ('index-url', 'extra-index-url', 'find-links', 'trusted-host', 'cert', 'proxy')
MMDET = ('mmdet', 'onedl-mmdetection')
UV = 'UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_INSECURE_HOST SSL_CERT_FILE ALL_PROXY'
# What builds mmcv, in an environment of its own: without torch it compiles nothing.
BUILD = ('packaging', 'setuptools', 'wheel')
# Operators for another torch install without a word and fail at their first call.
VERIFY = """import torch, mmcv._ext, mmcv.ops
assert not mmcv._ext.__file__.endswith('.py'), 'mmcv has no compiled operators'
boxes = torch.tensor([[0., 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]])
assert mmcv.ops.nms(boxes, boxes[:, 2], iou_threshold=0.5)[1].tolist() == [2, 1], 'nms is wrong'
print(True)
"""


def run(*command, **env):
    """Run a command; CalledProcessError where it fails. Locks pass on to it."""
    subprocess.run([*map(str, command)], check=True, close_fds=False, env={**os.environ, **env})


def cache():
    """Return the folder of caches; without HOME, and without a user of this number, a temporary."""
    try:
        home = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'
    except RuntimeError:
        home = Path(tempfile.gettempdir()) / f'cache-{os.getuid()}'
    return Path(home).absolute() / 'mmrank'


def wait_for(lock):
    """Take a lock, and say so where another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f'Waiting for another bootstrap, which locks {lock.name} ...', flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def output(*command):
    """Return what a command prints; empty where it fails."""
    found = os.path.exists(command[0]) and subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() if found else ''


def names(lock):
    """Return the names of the locked packages."""
    lines = lock.read_text(encoding='utf-8').splitlines()
    return {line.split('==')[0] for line in lines if '==' in line}


def pins(folder, wanted, lock=None, name='mmrank-pins.txt'):
    """Write the locked requirements whose names are wanted; return pip's options for them."""
    lines = (lock or LOCK).read_text(encoding='utf-8').replace('\\\n', ' ').splitlines()
    path = folder / name
    path.write_text('\n'.join(x for x in lines if wanted(x.split('==')[0])), encoding='utf-8')
    return '--require-hashes', '-r', path


def uv_settings(pip_config):
    """Return the variables that tell uv what ``pip config list`` printed."""
    found = {'UV_INDEX_STRATEGY': 'unsafe-best-match', 'UV_SYSTEM_CERTS': '1'}
    # A container may forbid to write byte code later: each import of torch would compile it.
    found['UV_COMPILE_BYTECODE'] = '1'
    sections = 'global.', 'install.', ':env:.'  # the last one counts
    for line in (x for s in sections for x in pip_config.splitlines() if x.startswith(s)):
        key, _, value = line.partition('.')[2].partition('=')
        if key in PIP:
            words = ast.literal_eval(value).split()
            if key == 'find-links':  # pip skips absent folders
                words = [','.join(x for x in words if '://' in x or os.path.exists(x))]
            found[UV.split()[PIP.index(key)]] = ' '.join(words)
    return {key: value for key, value in found.items() if value and key not in os.environ}


def install_mmcv(args, python, uv):
    """Install mmcv without operators, or compile them for this torch: they count when nms runs."""
    mmcv = pins(args.venv, 'onedl-mmcv'.__eq__)
    if not args.compile_mmcv:
        build = pins(args.venv, BUILD.__contains__, name='mmrank-build.txt')
        run(*uv, '--no-deps', *mmcv, '--build-constraints', build[-1])
    elif output(python, '-c', VERIFY) != 'True':
        print('Compiling mmcv (10 to 20 minutes of CPU time) ...', flush=True)
        # pip would keep the wheel, without regard to torch.
        fresh = '--force-reinstall', '--no-cache-dir', '--no-binary', 'onedl-mmcv'
        run(python, '-m', 'pip', 'install', '-v', *FLAGS, *fresh, *mmcv)
        run(python, '-c', VERIFY)


def make(args):
    """Make the environment, or bring it up to date."""
    python = args.venv / 'bin' / 'python'
    stamp = args.venv / 'mmrank-bootstrap.txt'
    lock = args.lock or LOCK
    openmmlab = not args.torch_alone and not names(lock).isdisjoint(MMDET)
    wanted = f'{ROOT}\n{lock.read_text(encoding="utf-8")}' + 'torch alone' * args.torch_alone
    wanted += (ROOT / 'pyproject.toml').read_text(encoding='utf-8')  # names the command mmrank
    wanted += 'compiled' * args.compile_mmcv
    modules = ('torch', 'mmrank', *(('mmcv',) if openmmlab else ()))
    find = f'import importlib.util as u; print(all(map(u.find_spec, {modules})))'
    if stamp.is_file() and stamp.read_text() == wanted and output(python, '-c', find) == 'True':
        return
    stamp.unlink(missing_ok=True)
    if not output(python, '-c', 'print(1)'):
        run(sys.executable, '-m', 'venv', args.venv)
    run(python, '-m', 'pip', 'install', '-q', *pins(args.venv, 'uv'.__eq__, lock))
    os.environ.update(uv_settings(output(python, '-m', 'pip', 'config', 'list')))
    uv = args.venv / 'bin' / 'uv', 'pip', 'install', '-p', python
    if args.torch_alone:
        # uv takes version and hash of each package from the lock file.
        run(*uv, '-r', ROOT / 'requirements' / 'runtime.txt', '-c', lock)
    else:
        later = ('onedl-mmcv', *LATER)
        run(*uv, *FLAGS, *pins(args.venv, lambda name: name not in later, lock))
        if not names(lock).isdisjoint(later):
            run(*uv, *FLAGS, *pins(args.venv, LATER.__contains__, lock))
            install_mmcv(args, python, uv)
    run(*uv, *FLAGS, '-e', ROOT)
    run(python, '-m', 'compileall', '-q', ROOT / 'mmrank')
    if openmmlab:
        # Whatever imports mmcv first, mmrank's operators or compiled ones are there.
        run(python, '-m', 'mmrank.mmcv_ops')
    checked = 'mmengine, mmcv.ops, mmdet.models, mmpretrain, mmrank.registry'
    run(python, '-c', f'import {checked if openmmlab else "mmrank.losses"}')
    stamp.write_text(wanted)
    print(f'Ready: source "{args.venv}/bin/activate"')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--venv', default=ROOT / '.venv', help='default: .venv')
    parser.add_argument('--lock', type=Path, help='default: requirements/lock.txt')
    parser.add_argument('--compile-mmcv', action='store_true', help='with g++, 10 to 20 minutes')
    parser.add_argument('--torch-alone', action='store_true', help='for losses: no OpenMMLab')
    args = parser.parse_args()
    newest = (3, 14) if args.lock else (3, 13)
    if not (3, 10) <= sys.version_info[:2] <= newest:
        sys.exit('This needs Python 3.10 to 3.13.\n  Fix: make env PYTHON=python3.11')
    if not str(args.venv).strip():
        sys.exit('--venv is blank.\n  Fix: --venv PATH, a folder for the environment')
    args.venv = Path(args.venv).absolute()
    is_made = (args.venv / 'pyvenv.cfg').exists()
    is_other = args.venv.is_dir() and any(args.venv.iterdir()) and not is_made
    if is_other or (args.venv.exists() and not args.venv.is_dir()):
        sys.exit(f'--venv {args.venv} holds other files.\n  Fix: --venv PATH, a folder of its own')
    try:
        folder = cache()
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / 'bootstrap.lock', 'a') as lock:
            os.set_inheritable(lock.fileno(), True)  # a child may outlive a killed parent
            wait_for(lock)
            make(args)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f'error: {str(error)[:400]}\n  Fix: what it names: the network, a full disk, other '
            'folders (--venv PATH, XDG_CACHE_HOME=PATH for caches); for --compile-mmcv g++ and '
            'python3-dev, or CUDA_VISIBLE_DEVICES= where there is no nvcc.'
        )
    except KeyboardInterrupt:
        sys.exit('Interrupted. Run it again to go on.')


if __name__ == '__main__':
    main()
