"""Float types that the operators compute in."""

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return float16 and bfloat16 as float32: torchvision takes not both of them on each device."""
    return tensor.float() if tensor.dtype in _HALF else tensor
