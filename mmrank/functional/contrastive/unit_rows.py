"""Rows of length 1, for embeddings of any size."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def unit_rows(x: Tensor) -> Tensor:
    """Divide each row by its Euclidean length.

    Args:
        x: (n, D) floats. A row of 1e-30 or 1e30, whose squares leave the
            range of float32, has a length like any other.

    Returns:
        (n, D), at least float32: in half precision close cosines tie. A row
        of zeros stays zero and has no gradient.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    # The result does not depend on the scale, so the scale has no gradient.
    scale = x.detach().abs().amax(1, keepdim=True) if x.size(1) else 1
    zero = torch.as_tensor(scale == 0, device=x.device)
    return normalize(x / torch.where(zero, 1, scale), dim=1)
