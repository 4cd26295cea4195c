"""Barlow Twins and VICReg: statistics of the columns of two views."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.checks import check_not_negative
from mmrank.losses.options import ScopeOptions, Unpack

from .base import ContrastedBatch, ContrastiveLoss


def off_diagonal_square_sum(x: Tensor, y: Tensor) -> Tensor:
    """``sum_{a != b} (x^T y)_ab^2`` of two (n, D) matrices, by way of the smaller matrix.

    With n < D rows the (D, D) matrix is not formed: the sum of its squares is the sum of the
    products of the (n, n) Gram matrices, ``<x x^T, y y^T>``. At n = 256 and D = 8192 that is a
    thousandth of the memory.
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
    """How far the cross-correlation matrix of two (B, D) views is from the identity, B >= 2.

    Columns are standardised over the batch, as batch norm does it, with ``eps`` added to the
    variance. Source: Zbontar et al., Barlow Twins, ICML 2021, eq. 1 and 2.

    Returns:
        ``sum_a (1 - C_aa)^2`` and ``sum_{a != b} C_ab^2``, at least float32.
    """
    dtype = torch.promote_types(view1.dtype, torch.float32)
    n = view1.size(0)
    with torch.autocast(view1.device.type, enabled=False):
        x = _standardised(view1.to(dtype), eps)
        y = _standardised(view2.to(dtype), eps)
        own = (x * y).sum(0) / n
        return (1 - own).square().sum(), off_diagonal_square_sum(x, y) / n**2


def _standardised(view: Tensor, eps: float) -> Tensor:
    centred = view - view.mean(0)
    return centred / (view.var(0, correction=0) + eps).sqrt()


@dataclass
class VICRegTerms:
    """The three parts of VICReg, scalars."""

    invariance: Tensor  # mean squared difference of the views
    variance: Tensor  # mean of ``max(0, 1 - standard deviation)`` over the columns of both views
    #: Squares of the covariances of different columns over their number; both views added.
    covariance: Tensor


def vicreg_terms(view1: Tensor, view2: Tensor, eps: float = 1e-4) -> VICRegTerms:
    """Variance, invariance and covariance of two (B, D) views, B >= 2, at least float32.

    Source: Bardes et al., VICReg, ICLR 2022, eq. 1 to 5, with the mean over the two views in the
    variance and ``eps`` added to it before the root, as in the authors' code.
    """
    dtype = torch.promote_types(view1.dtype, torch.float32)
    n, d = view1.shape
    with torch.autocast(view1.device.type, enabled=False):
        views = view1.to(dtype), view2.to(dtype)
        invariance = (views[0] - views[1]).square().mean()
        variance = covariance = invariance.new_zeros(())
        for view in views:
            std = (view.var(0) + eps).sqrt()
            variance = variance + (1 - std).relu().mean() / 2
            centred = view - view.mean(0)
            squares = off_diagonal_square_sum(centred, centred)
            covariance = covariance + squares / (n - 1) ** 2 / d
    return VICRegTerms(invariance, variance, covariance)


class DecorrelationLoss(ContrastiveLoss):
    """Base of losses that compare columns of a batch, not its samples.

    They have no negatives and use no index: a sample that occurs twice counts twice. With
    ``scope='global'`` the statistics are over the batches of all ranks.
    """

    def __init__(self, **kwargs: Unpack[ScopeOptions]) -> None:
        super().__init__(normalize=False, **kwargs)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """The loss of the batch, once for each sample: the base takes the mean."""
        views = batch.all_view1, batch.all_view2
        if batch.all_view1.size(0) < 2:
            # The sum of a row in half precision may overflow: 0 first.
            dtype = torch.promote_types(views[0].dtype, torch.float32)
            loss = (0 * views[0]).sum(dtype=dtype) + (0 * views[1]).sum(dtype=dtype)
        else:
            loss = self.batch_loss(*views)
        return loss.expand(batch.ids.numel())

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Scalar loss of two (M, D) views, M >= 2, without ``loss_weight``."""
        raise NotImplementedError


class BarlowTwinsLoss(DecorrelationLoss):
    """Cross-correlation of two views, drawn to the identity.

    In one process it is mmpretrain's ``LatentCrossCorrelationHead`` with ``CrossCorrelationLoss``.
    That one standardises each rank by itself and sends no gradient through its sum over ranks; here
    the batch is the batch of all ranks. Source: Zbontar et al., Barlow Twins, ICML 2021.

    Args:
        off_diagonal: Weight of the correlation of different columns, >= 0.
        **kwargs: See :class:`ContrastiveLoss`, except ``normalize``.
    """

    def __init__(self, off_diagonal: float = 0.0051, **kwargs: Unpack[ScopeOptions]) -> None:
        super().__init__(**kwargs)
        check_not_negative(off_diagonal=off_diagonal)
        self.off_diagonal = float(off_diagonal)

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Both parts of the distance from the identity, weighted."""
        own, others = cross_correlation_terms(view1, view2)
        self.diagnostics |= {'on_diagonal': own.detach(), 'off_diagonal': others.detach()}
        return own + self.off_diagonal * others


class VICRegLoss(DecorrelationLoss):
    """Variance, invariance and covariance of two views, weighted.

    Source: Bardes et al., VICReg, ICLR 2022, eq. 6. Embeddings are not normalised.

    **Half precision.** The loss is computed in float32. A gradient beyond 65504 is infinite in
    float16, so that a ``GradScaler`` skips the step.

    Args:
        invariance: Weight of the difference of the views, >= 0.
        variance: Weight of columns with a standard deviation below 1.
        covariance: Weight of the covariance of different columns.
        **kwargs: See :class:`ContrastiveLoss`, except ``normalize``.
    """

    def __init__(
        self,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        **kwargs: Unpack[ScopeOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.weights = dict(invariance=invariance, variance=variance, covariance=covariance)
        check_not_negative(**self.weights)

    def batch_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """The weighted sum of the terms."""
        total = view1.new_zeros(())
        for name, term in vars(vicreg_terms(view1, view2)).items():
            self.diagnostics[name] = term.detach()
            total = total + self.weights[name] * term
        return total
