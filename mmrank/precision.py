"""The float type in which scores and boxes are computed."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """A tensor in float32 or, where it has it, a wider type.

    In half precision close scores tie, and areas of large boxes overflow.
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
