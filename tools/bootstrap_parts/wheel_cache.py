"""A cache of built mmcv wheels.

pip keeps the wheels that it builds by name and version alone, so one that
was built for another torch installs in a second and fails at import. Here
the key names everything that the binary depends on.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

#: Runs in the environment: prints what the binary depends on.
DESCRIBE = """
import json, sys, sysconfig, torch
archs = []
if torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        archs.append('%d%d' % torch.cuda.get_device_capability(index))
print(json.dumps(dict(
    torch=torch.__version__,
    torch_cuda=torch.version.cuda,
    python='cp%d%d' % sys.version_info[:2],
    platform=sysconfig.get_platform(),
    archs=sorted(set(archs)),
)))
"""

#: Runs in the environment: the ops exist and return the right answer.
VERIFY = """
import sys
import mmcv
import torch
from mmcv.ops import nms
assert mmcv.__version__ == sys.argv[1], mmcv.__version__
boxes = torch.tensor([[0., 0., 10., 10.], [1., 1., 11., 11.],
                      [20., 20., 30., 30.]])
scores = torch.tensor([.9, .8, .7])
kept = nms(boxes, scores, iou_threshold=0.5)[1].tolist()
assert kept == [0, 2], kept
"""


def cache_root():
    """Return the folder of built wheels, in the user's cache."""
    base = os.environ.get('XDG_CACHE_HOME') or os.path.join('~', '.cache')
    return Path(base).expanduser() / 'mmrank' / 'wheels'


def cache_key(mmcv, torch, python, platform, build):
    """Return the name under which a wheel is kept.

    Args:
        mmcv: Version of mmcv.
        torch: Version of torch, with its local part (``2.11.0+cu130``).
        python: Tag of the interpreter (``cp311``).
        platform: Platform, as ``sysconfig.get_platform()`` names it.
        build: ``'cpu'``, or ``'cuda13.0-sm90'`` for ops on the GPU.
    """
    parts = (f'mmcv-{mmcv}', f'torch-{torch}', python, platform, build)
    return '_'.join(re.sub(r'[^A-Za-z0-9.+-]', '-', part) for part in parts)


def may_be_cached(root, mmcv, torch, python):
    """Return whether some wheel of these versions is in the cache.

    Called before torch is installed, when its local version and the GPU are
    not known yet, to decide early whether a compiler will be needed.
    """
    start = cache_key(mmcv, torch, '', '', '').rstrip('_')
    platform = re.sub(r'[^A-Za-z0-9.+-]', '-', sysconfig.get_platform())
    return any(
        f'_{python}_{platform}_' in folder.parent.name
        for folder in Path(root).glob(f'{start}*/*.whl')
    )


def find(folder):
    """Return the wheel in a key's folder, or ``None``."""
    wheels = sorted(Path(folder).glob('*.whl'))
    return wheels[-1] if wheels else None


def store(wheel, folder):
    """Put a wheel into a key's folder, whole or not at all.

    Returns:
        Its path in the cache.
    """
    wheel, folder = Path(wheel), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=str(folder), suffix='.part')
    os.close(handle)
    try:
        shutil.copyfile(wheel, part)
        os.chmod(part, 0o644)
        os.replace(part, folder / wheel.name)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise
    return folder / wheel.name


def drop(folder):
    """Remove what is kept under a key."""
    for wheel in Path(folder).glob('*.whl'):
        wheel.unlink()


def verify(python, version):
    """Run the ops once in the environment.

    Args:
        python: The environment's interpreter.
        version: The version of mmcv that should be there.

    Returns:
        The empty string, or the last line of the trouble.
    """
    done = subprocess.run(
        [str(python), '-c', VERIFY, version],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return ''
    return (done.stderr.strip().splitlines() or ['no output'])[-1]


@contextlib.contextmanager
def locked(path, waiting):
    """Hold a lock file; a second process waits.

    Args:
        path: The lock file.
        waiting: Called once when another process holds it.

    Yields:
        The open file: a child that keeps it open keeps the lock, so one
        that outlives a killed parent is waited for as well.
    """
    import fcntl  # POSIX only; the bootstrap refuses others before this

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'a') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
