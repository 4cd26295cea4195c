"""Barlow Twins and VICReg: statistics of the columns of two views."""

from dataclasses import dataclass

import torch
from torch import Tensor


def off_diagonal_square_sum(x: Tensor, y: Tensor) -> Tensor:
    """``sum_{a != b} (x^T y)_ab^2``, by way of the smaller matrix.

    With D columns and n < D rows the (D, D) matrix is not formed: the sum of its squares is that of
    the products of the (n, n) Gram matrices, ``<x x^T, y y^T>``. At n = 256 and D = 8192 that is a
    thousandth of the memory.

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


def cross_correlation_terms(
    view1: Tensor, view2: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """How far the cross-correlation matrix of two views is from the identity.

    Columns are standardised over the batch, as batch norm does it. Source: Zbontar et al., Barlow
    Twins, ICML 2021, eq. 1 and 2. The (D, D) matrix is not formed where the batch is smaller than
    D.

    Args:
        view1: (B, D) embeddings, B >= 2.
        view2: (B, D) embeddings of the same samples.
        eps: Added to the variance before the root.

    Returns:
        ``sum_a (1 - C_aa)^2`` and ``sum_{a != b} C_ab^2``, at least float32.

    Raises:
        ValueError: If shapes do not fit.
    """
    if view1.dim() != 2 or view1.shape != view2.shape or view1.size(0) < 2:
        raise ValueError(
            'a correlation needs two views of at least 2 samples, got shapes '
            f'{tuple(view1.shape)} and {tuple(view2.shape)}'
        )
    dtype = torch.promote_types(view1.dtype, torch.float32)
    n = view1.size(0)
    with torch.autocast(view1.device.type, enabled=False):
        x, y = (_standardised(v.to(dtype), eps) for v in (view1, view2))
        own = (x * y).sum(0) / n
        return (1 - own).square().sum(), off_diagonal_square_sum(x, y) / n**2


def _standardised(view: Tensor, eps: float) -> Tensor:
    centred = view - view.mean(0)
    return centred / (view.var(0, correction=0) + eps).sqrt()


@dataclass
class VICRegTerms:
    """The three parts of VICReg, scalars.

    Attributes:
        invariance: Mean squared difference of the views.
        variance: Mean of ``max(0, 1 - standard deviation)`` over the columns of both views.
        covariance: Squares of the covariances of different columns, over the number of columns;
            both views added.
    """

    invariance: Tensor
    variance: Tensor
    covariance: Tensor


def vicreg_terms(view1: Tensor, view2: Tensor, eps: float = 1e-4) -> VICRegTerms:
    """Variance, invariance and covariance of a batch.

    Source: Bardes et al., VICReg, ICLR 2022, eq. 1 to 5, with the mean over the two views in the
    variance, as in the authors' code. The (D, D) covariances are not formed where the batch is
    smaller than D.

    Args:
        view1: (B, D) embeddings, B >= 2, D >= 1.
        view2: (B, D) embeddings of the same samples.
        eps: Added to the variance before the root.

    Returns:
        The terms, at least float32.

    Raises:
        ValueError: If shapes do not fit.
    """
    if view1.dim() != 2 or view1.shape != view2.shape or view1.size(0) < 2 or view1.size(1) < 1:
        raise ValueError(
            'a covariance needs two views of at least 2 samples, got shapes '
            f'{tuple(view1.shape)} and {tuple(view2.shape)}'
        )
    dtype = torch.promote_types(view1.dtype, torch.float32)
    n, d = view1.shape
    with torch.autocast(view1.device.type, enabled=False):
        views = view1.to(dtype), view2.to(dtype)
        invariance = (views[0] - views[1]).square().mean()
        variance = covariance = 0
        for view in views:
            std = (view.var(0) + eps).sqrt()
            variance = variance + (1 - std).relu().mean() / 2
            centred = view - view.mean(0)
            squares = off_diagonal_square_sum(centred, centred)
            covariance = covariance + squares / (n - 1) ** 2 / d
    return VICRegTerms(invariance, variance, covariance)
