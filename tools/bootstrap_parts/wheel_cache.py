"""A cache of built mmcv wheels, and the proof that one works.

pip and uv keep the wheels that they build by name and version alone, so one that was built for
another torch installs in a second and fails at import.
Here the key names everything that the binary depends on.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from .checks import SetupError

#: Runs in the environment: prints what the binary depends on.
DESCRIBE = """
import json, sys, sysconfig, torch
count = torch.cuda.device_count()
archs = {'%d%d' % torch.cuda.get_device_capability(i) for i in range(count)}
print(json.dumps(dict(
    torch=torch.__version__, torch_cuda=torch.version.cuda,
    python='cp%d%d' % sys.version_info[:2],
    platform=sysconfig.get_platform(), archs=sorted(archs))))
"""
#: Runs in the environment: the ops exist and return the right answer.
VERIFY = """
import sys, mmcv, torch
from mmcv.ops import nms
version, device = sys.argv[1:]
found = mmcv.__version__
assert found == version or found.startswith((version + '.', version + '+')), (
    f'mmcv is {found}, not {version}')
boxes = torch.tensor([[0., 0., 10., 10.], [1., 1., 11., 11.],
                      [20., 20., 30., 30.]], device=device)
scores = torch.tensor([.9, .8, .7], device=device)
kept = nms(boxes, scores, iou_threshold=0.5)[1].tolist()
assert kept == [0, 2], f'nms keeps {kept}, not [0, 2]'
"""


def verify(python, version, device='cpu'):
    """Run the ops of mmcv; return the trouble, empty if there is none.

    A post release of the version passes as well.
    """
    argv = [str(python), '-c', VERIFY, version, device]
    done = subprocess.run(argv, capture_output=True, text=True)
    lines = done.stderr.strip().splitlines() or [f'exit {done.returncode}']
    return lines[-1] if done.returncode else ''


def cache_root(name='mmrank'):
    """Return the folder of a program in the user's cache."""
    try:
        base = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'
    except RuntimeError:
        raise SetupError(
            'There is no folder for the cache of built wheels: HOME is not '
            'set.\n  Fix: set HOME, or XDG_CACHE_HOME=/a/writable/folder.'
        ) from None
    return Path(base).absolute() / name


def cache_key(mmcv, facts, build):
    """Return the name under which a wheel is kept."""
    torch, python, platform = (facts[x] for x in ('torch', 'python', 'platform'))
    parts = (f'mmcv-{mmcv}', f'torch-{torch}', python, platform, build)
    return '_'.join(re.sub(r'[^A-Za-z0-9.+-]', '-', part) for part in parts)


def find(folder):
    """Return the wheel in a key's folder, or None, and its trouble."""
    wheel = max(Path(folder).glob('*.whl'), default=None)
    if wheel is None:
        return None, ''
    record = Path(f'{wheel}.sha256')
    wanted = record.read_text().split()[:1] if record.is_file() else []
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return wheel, '' if wanted == [found] else f'its SHA-256 is not in {record}'


def store(wheel, folder):
    """Put a wheel and its hash into a key's folder; return its place."""
    # The hash is written last, so a torn copy is never installed.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    place = Path(shutil.copy(wheel, folder))
    found = hashlib.sha256(Path(wheel).read_bytes()).hexdigest()
    Path(f'{place}.sha256').write_text(f'{found}  {place.name}\n')
    return place


@contextlib.contextmanager
def hold(path, waiting):
    """Hold a lock file; a second process calls ``waiting`` and waits.

    A child that inherits the open file keeps the lock, so one that outlives
    a killed parent is waited for as well.
    """
    import fcntl  # POSIX only; the bootstrap refuses others before this

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'a') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
