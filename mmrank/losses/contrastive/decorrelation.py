"""Barlow Twins and VICReg: statistics of the columns of two views."""

import torch
from torch import Tensor

from mmrank.autograd import violated
from mmrank.errors import UserError
from mmrank.tensors import at_least_float32

from .base import ContrastedBatch, ContrastiveLoss


def _centred(view: Tensor, weight: Tensor | None) -> Tensor:
    """(n, D) rows less their mean, times the root of their weight."""
    if weight is None:
        return view - view.mean(0)
    return (view - weight @ view / weight.sum()) * weight.sqrt()[:, None]


def _variance(view: Tensor, weight: Tensor | None, correction: int) -> Tensor:
    if weight is None:
        return view.var(0, correction=correction)
    return _centred(view, weight).square().sum(0) / (weight.sum() - correction)


def _off_diagonal_square_sum(x: Tensor, y: Tensor) -> Tensor:
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
    is_diagonal = torch.eye(d, dtype=torch.bool, device=x.device)
    return product.masked_fill(is_diagonal, 0).square().sum()


class _DecorrelationLoss(ContrastiveLoss):
    """Base of losses that compare columns of a batch, not its samples.

    They have no negatives and use no index: a sample that occurs twice counts twice. The number of
    rows is the sum of their weights. Embeddings are not normalised. With ``scope='global'`` the
    statistics are over the batches of all ranks.
    """

    def normalized(self, view: Tensor) -> Tensor:
        return view

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        """The loss of the batch, once for each sample: the base takes the mean."""
        view1, view2 = (at_least_float32(x) for x in batch.gathered.views)
        weight = batch.gathered.weight
        if len(view1) < (2 if weight is None else 1):
            loss = (0 * view1).sum() + (0 * view2).sum()
        else:
            counts = None
            if weight is not None:
                counts = (weight.count_nonzero() > 1) | (weight.sum() > 1)
                weight = torch.where(counts, weight, 2)
            with torch.autocast(view1.device.type, enabled=False):
                loss = self.batch_loss(view1, view2, weight)
            loss = loss if counts is None else loss * counts
        return loss.expand(len(batch.local.ids))

    def batch_loss(self, view1: Tensor, view2: Tensor, weight: Tensor | None = None) -> Tensor:
        """Scalar loss of two (M, D) views, at least float32, of at least two rows that count."""
        raise NotImplementedError


class BarlowTwinsLoss(_DecorrelationLoss):
    """Cross-correlation matrix C of two views, drawn to the identity.

    ``sum_a (1 - C_aa)^2`` and, weighted by :attr:`off_diagonal`, ``sum_{a != b} C_ab^2``. Columns
    are standardised over the batch, as batch norm does it. Source: Zbontar et al., Barlow Twins,
    ICML 2021, eq. 1 and 2. In one process it is mmpretrain's ``LatentCrossCorrelationHead`` with
    ``CrossCorrelationLoss``, which standardises each rank by itself; here the batch is of all
    ranks.
    """

    off_diagonal = 0.0051
    eps = 1e-5  # is added to the variance

    def batch_loss(self, view1: Tensor, view2: Tensor, weight: Tensor | None = None) -> Tensor:
        x, y = [
            _centred(view, weight) / (_variance(view, weight, 0) + self.eps).sqrt()
            for view in (view1, view2)
        ]
        n = len(x) if weight is None else weight.sum()
        on_diagonal = (1 - (x * y).sum(0) / n).square().sum()
        off_diagonal = _off_diagonal_square_sum(x, y) / n**2
        self.diagnostics['on_diagonal'] = on_diagonal.detach()
        self.diagnostics['off_diagonal'] = off_diagonal.detach()
        return on_diagonal + self.off_diagonal * off_diagonal


class VICRegLoss(_DecorrelationLoss):
    """Variance, invariance and covariance of two views, with the weights of the paper.

    ``invariance`` is the mean squared difference of the views, ``variance`` the mean of ``max(0, 1
    - standard deviation)`` over the columns of both, and ``covariance`` the sum over both of the
    squared covariances of different columns over the number of columns. Source: Bardes et al.,
    VICReg, ICLR 2022, eq. 1 to 6, with the mean over the views in the variance and ``eps`` added to
    it before the root, as in the authors' code. The divisor of the variances is the sum of the
    weights less 1. A gradient beyond 65504 is infinite in float16, so that a ``GradScaler`` skips
    the step.
    """

    invariance = 25.0
    variance = 25.0
    covariance = 1.0
    eps = 1e-4

    def batch_loss(self, view1: Tensor, view2: Tensor, weight: Tensor | None = None) -> Tensor:
        n, d = view1.shape
        if weight is not None:
            n = weight.sum()
            fix = 'the weights of a batch must sum up to more than 1. Fix: weight / weight.mean()'
            if violated(n > 1, fix):
                raise UserError(f'{fix}; got {n:g}')
        variance = covariance = view1.new_zeros(())
        for view in (view1, view2):
            std = (_variance(view, weight, 1) + self.eps).sqrt()
            variance = variance + (1 - std).relu().mean() / 2
            centred = _centred(view, weight)
            squares = _off_diagonal_square_sum(centred, centred)
            covariance = covariance + squares / (n - 1) ** 2 / d
        squares = (view1 - view2).square()
        invariance = squares.mean() if weight is None else weight @ squares.mean(1) / n
        terms = dict(invariance=invariance, variance=variance, covariance=covariance)
        self.diagnostics |= {name: term.detach() for name, term in terms.items()}
        of_views = self.invariance * invariance + self.variance * variance
        return of_views + self.covariance * covariance
