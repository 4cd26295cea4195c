"""The state of all random number generators of this process."""

import logging
import random

import numpy as np
import torch
from mmengine.logging import print_log


def get_rng_state() -> dict:
    """States of Python, NumPy, torch's CPU and, where already started, CUDA generators."""
    has_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        'python': random.getstate(),
        'numpy': np.random.get_state(),
        'torch': torch.get_rng_state(),
        'cuda': torch.cuda.get_rng_state_all() if has_cuda else [],
    }


def set_rng_state(state: dict) -> None:
    """Set all generators to a state from :func:`get_rng_state`."""
    random.setstate(state['python'])
    np.random.set_state(state['numpy'])
    torch.set_rng_state(state['torch'])
    cuda = state['cuda']
    devices = torch.cuda.device_count() if cuda else 0
    if len(cuda) != devices:
        print_log(
            f'The checkpoint has random states of {len(cuda)} CUDA devices, {devices} are '
            'visible: only the states of devices present in both are restored.',
            logger='current',
            level=logging.WARNING,
        )
    for index, device_state in enumerate(cuda[:devices]):
        torch.cuda.set_rng_state(device_state, index)


def pack_rng_state(state: dict) -> dict:
    """Turn a state into tensors and plain containers."""
    version, keys, gauss = state['python']
    kind, numpy_keys, position, has_gauss, cached = state['numpy']
    return {
        'python': dict(version=version, keys=torch.tensor(keys, dtype=torch.int64), gauss=gauss),
        'numpy': {
            'kind': str(kind),
            'keys': torch.from_numpy(numpy_keys.astype(np.int64)),
            'position': int(position),
            'has_gauss': int(has_gauss),
            'cached': float(cached),
        },
        'torch': state['torch'],
        'cuda': list(state['cuda']),
    }


def unpack_rng_state(packed: dict) -> dict:
    """Undo :func:`pack_rng_state`; the tensors may be on any device."""
    python, numpy = packed['python'], packed['numpy']
    numpy_keys = numpy['keys'].cpu().numpy().astype(np.uint32)
    rest = (numpy['position'], numpy['has_gauss'], numpy['cached'])
    return {
        'python': (python['version'], tuple(python['keys'].tolist()), python['gauss']),
        'numpy': (numpy['kind'], numpy_keys, *rest),
        'torch': packed['torch'].cpu(),
        'cuda': [state.cpu() for state in packed['cuda']],
    }
