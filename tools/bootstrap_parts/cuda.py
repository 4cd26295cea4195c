"""Decide whether mmcv's ops are built for the GPU."""

import os
import re
import shutil
import subprocess

from .checks import SetupError


def find_nvcc():
    """Return the CUDA compiler that torch's build tools would take."""
    home = os.environ.get('CUDA_HOME') or os.environ.get('CUDA_PATH')
    if home:
        path = os.path.join(home, 'bin', 'nvcc')
        return path if os.path.isfile(path) else None
    return shutil.which('nvcc') or shutil.which(
        'nvcc', path='/usr/local/cuda/bin'
    )


def nvcc_major(nvcc):
    """Return the major CUDA version of a compiler, or ``None``."""
    try:
        done = subprocess.run(
            [nvcc, '--version'], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'release (\d+)\.\d+', done.stdout)
    return int(match.group(1)) if match else None


def choose_build(wish, facts):
    """Choose between a build for the CPU and one for the GPU.

    Args:
        wish: ``'auto'``, ``'on'`` or ``'off'``.
        facts: What ``wheel_cache.DESCRIBE`` printed.

    Returns:
        ``(build, env, note)``: the name for the cache key, the variables of
        the build, and a sentence for the user (may be empty).

    Raises:
        SetupError: ``wish`` is ``'on'`` and it cannot be done.
    """
    # An empty list of devices keeps mmcv's setup from choosing by itself.
    cpu = ('cpu', {'CUDA_VISIBLE_DEVICES': '', 'FORCE_CUDA': '0'})
    archs = facts['archs']
    if wish == 'off' or (wish == 'auto' and not archs):
        return (*cpu, '')
    nvcc = find_nvcc()
    cuda = facts['torch_cuda']
    wanted = int(cuda.split('.')[0]) if cuda else None
    if wanted is None:
        trouble = 'this torch was built without CUDA'
    elif nvcc is None:
        trouble = (
            f'no nvcc was found (CUDA {wanted} toolkit; set CUDA_HOME if it '
            f'is in an unusual place)'
        )
    elif nvcc_major(nvcc) != wanted:
        trouble = (
            f'{nvcc} is CUDA {nvcc_major(nvcc)}, torch was built for {wanted}'
        )
    else:
        listed = os.environ.get('TORCH_CUDA_ARCH_LIST', '')
        name = listed.replace(';', '-').replace(' ', '-') or '-'.join(archs)
        return (
            f'cuda{cuda}-sm{name or "default"}',
            {'FORCE_CUDA': '1'},
            f'the ops are built for the GPU with {nvcc}',
        )
    if wish == 'on':
        raise SetupError(
            f'--cuda on: {trouble}.\n'
            f'  Fix: install the CUDA toolkit that torch was built for '
            f'({cuda or "a CUDA build of torch first"}), or use --cuda off.'
        )
    return (
        *cpu,
        f'there is a GPU, but {trouble}: the ops are built for the CPU only, '
        f'so detectors with NMS will not run on the GPU',
    )
