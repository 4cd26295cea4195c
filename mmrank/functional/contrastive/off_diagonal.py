"""Off-diagonal part of a product of tall or wide matrices."""

import torch
from torch import Tensor


def off_diagonal_square_sum(x: Tensor, y: Tensor) -> Tensor:
    """``sum_{a != b} (x^T y)_ab^2``, by way of the smaller matrix.

    With D columns and n < D rows the (D, D) matrix is not formed: the sum of
    its squares is that of the products of the (n, n) Gram matrices, ``<x x^T,
    y y^T>``. At n = 256 and D = 8192 that is a thousandth of the memory.

    Args:
        x: (n, D) floats.
        y: (n, D) floats.

    Returns:
        Scalar.
    """
    n, d = x.shape
    if n < d:
        whole = ((x @ x.t()) * (y @ y.t())).sum()
        return whole - (x * y).sum(0).square().sum()
    product = x.t() @ y
    own = torch.eye(d, dtype=torch.bool, device=x.device)
    return product.masked_fill(own, 0).square().sum()
