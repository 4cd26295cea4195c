"""The state of all random number generators of this process, in tensors and plain containers."""

import random

import numpy as np
import torch


def get_rng_state() -> dict:
    """States of Python, NumPy, torch's CPU and, where already started, CUDA generators."""
    has_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    kind, keys, *rest = np.random.get_state()
    return {
        'python': random.getstate(),
        'numpy': (kind, keys.tolist(), *rest),
        'torch': torch.get_rng_state(),
        'cuda': torch.cuda.get_rng_state_all() if has_cuda else [],
    }


def set_rng_state(state: dict) -> None:
    """Set all generators to a state from :func:`get_rng_state`; its tensors may be anywhere."""
    random.setstate(state['python'])
    np.random.set_state(state['numpy'])
    torch.set_rng_state(state['torch'].cpu())
    if state['cuda']:
        for index, device_state in enumerate(state['cuda'][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(device_state.cpu(), index)
