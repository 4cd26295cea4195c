"""mmengine's mixed precision without the GPU that it asks for."""

from contextlib import contextmanager
from functools import partial

import torch
from mmengine.optim.optimizer import amp_optimizer_wrapper
from mmengine.runner import amp


@contextmanager
def _autocast(dtype=None):
    """Autocast of torch: that of mmengine refuses float16 on a CPU."""
    with torch.autocast('cpu', dtype=dtype):
        yield


def let_amp_run() -> None:
    """Take mmengine's checks of the device away, in this process for good.

    ``AmpOptimWrapper`` itself stays: it scales, unscales, skips steps, and saves the state of its
    scaler, which works on CPU tensors here.
    """
    amp_optimizer_wrapper.is_cuda_available = lambda: True
    scaler = partial(torch.amp.GradScaler, device='cpu')
    amp_optimizer_wrapper.GradScaler = scaler
    amp.autocast = _autocast
