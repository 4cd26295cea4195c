"""Sum and mean of a pair surrogate over all positive-negative pairs.

For the one-sided Huber surrogate the result is exact in near-linear time and
linear memory, forward and backward (derivation in ``pairwise_tables``). Other
surrogates, and problems too small to gain, go through the pair matrix in
blocks of bounded size.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .pairwise_tables import SCORE_LIMIT, PairwiseTables
from .score_binning import CHUNK, ScoreBinner
from .surrogates import OneSidedHuber, Surrogate

# Pairs up to which the pair matrix is the faster of the two paths.
DENSE_PAIRS = 2**18
# Pairs of one block of the pair matrix, each a float64: 32 MiB a temporary.
_PAIRS_PER_BLOCK = 2**22
# Scores per pass where a pass is a kernel launch and not a cache-sized step.
_DEVICE_CHUNK = 2**22


def _finite(scores: Tensor) -> Tensor:
    return scores.clamp(-SCORE_LIMIT, SCORE_LIMIT)


def _column_blocks(width: int, size: int):
    for begin in range(0, width, size):
        yield slice(begin, min(begin + size, width))


class _PairMatrix:
    """Any surrogate, over blocks of the (L, P, N) pair matrix in float64."""

    def __init__(self, pos, neg, neg_mask, surrogate):
        self.pos, self.neg, self.neg_mask = pos, neg, neg_mask
        self.surrogate = surrogate

    def _blocks(self):
        size = max(_PAIRS_PER_BLOCK // max(self.pos.numel(), 1), 1)
        for part in _column_blocks(self.neg.size(1), size):
            x = _finite(self.pos.double()).unsqueeze(2) - _finite(
                self.neg[:, part].double()
            ).unsqueeze(1)
            keep = None
            if self.neg_mask is not None:
                keep = self.neg_mask[:, part].unsqueeze(1)
            yield part, x, keep

    def sums(self) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(self.pos, dtype=torch.float64)
        slope = torch.zeros_like(total)
        for _, x, keep in self._blocks():
            value, change = self.surrogate(x), self.surrogate.derivative(x)
            if keep is not None:
                value = torch.where(keep, value, 0)
                change = torch.where(keep, change, 0)
            total += value.sum(2)
            slope += change.sum(2)
        return total, slope

    def gradient_of_negatives(self, grad: Tensor) -> Tensor:
        out = torch.empty_like(self.neg, memory_format=torch.contiguous_format)
        for part, x, keep in self._blocks():
            change = self.surrogate.derivative(x).neg_()
            if keep is not None:
                change = torch.where(keep, change, 0)
            out[:, part] = torch.einsum('lp,lpn->ln', grad, change)
        return out


class _IntervalSums:
    """The one-sided Huber surrogate by moments of sorted intervals."""

    def __init__(self, pos, pos_mask, neg, neg_mask, tau):
        self.neg, self.neg_mask, self.tau = neg, neg_mask, tau
        dtype = torch.promote_types(neg.dtype, torch.float32)
        self.tables = PairwiseTables.build(pos, pos_mask, tau, dtype)
        self.bins = torch.empty(
            neg.shape, dtype=torch.int32, device=neg.device
        )
        self.on_cpu = neg.device.type == 'cpu'

    def _blocks(self):
        """Yield (row, columns): cache-sized on the CPU, large elsewhere."""
        num_lists, width = self.neg.shape
        if self.on_cpu:
            for row in range(num_lists):
                for part in _column_blocks(width, CHUNK):
                    yield row, part
        else:
            size = max(_DEVICE_CHUNK // max(num_lists, 1), 1)
            for part in _column_blocks(width, size):
                yield slice(None), part

    def _bin(self, scores: Tensor, binner: ScoreBinner | None) -> Tensor:
        if binner is not None:
            return binner(scores)
        return torch.searchsorted(
            self.tables.thresholds, scores.contiguous(), out_int32=True
        )

    def sums(self) -> tuple[Tensor, Tensor]:
        tables = self.tables
        moments = tables.p.new_zeros(3, *tables.anchors.shape)
        binner = binned_row = None
        for row, part in self._blocks():
            if self.on_cpu and row != binned_row:
                binned_row = row
                binner = ScoreBinner(tables.thresholds[row], self.neg.size(1))
            scores = _finite(self.neg[row, part].to(tables.thresholds.dtype))
            bins = self._bin(scores, binner)
            if self.neg_mask is not None:
                # Interval 0 lies below all windows: it takes what is left out.
                bins.masked_fill_(~self.neg_mask[row, part], 0)
            self.bins[row, part] = bins
            u = (scores.double() - tables.centre[row]).div_(self.tau)
            u -= self._look_up(tables.anchors, row, bins)
            self._accumulate(moments[:, row], bins, u)
        total, slope = tables.reduce(moments)
        return total, slope / self.tau

    def _accumulate(self, moments: Tensor, bins: Tensor, u: Tensor) -> None:
        if self.on_cpu:
            # Several times faster than a scatter-add on the CPU; on a GPU it
            # would synchronise with the host.
            size = moments.size(-1)
            moments[0] += torch.bincount(bins, minlength=size)
            moments[1] += torch.bincount(bins, u, minlength=size)
            moments[2] += torch.bincount(bins, u.square_(), minlength=size)
            return
        bins = bins.long()
        moments[0].scatter_add_(1, bins, torch.ones_like(u))
        moments[1].scatter_add_(1, bins, u)
        moments[2].scatter_add_(1, bins, u.square())

    def _look_up(self, table: Tensor, row, bins: Tensor) -> Tensor:
        if self.on_cpu:
            return table[row].index_select(0, bins)
        return table.gather(1, bins.long())

    def gradient_of_negatives(self, grad: Tensor) -> Tensor:
        const, by_y = self.tables.slope_coefficients(grad / self.tau)
        out = torch.empty_like(self.neg, memory_format=torch.contiguous_format)
        for row, part in self._blocks():
            y = _finite(self.neg[row, part].double())
            y.sub_(self.tables.centre[row]).div_(self.tau)
            bins = self.bins[row, part]
            y.mul_(self._look_up(by_y, row, bins))
            out[row, part] = y.add_(self._look_up(const, row, bins))
        return out


class _PairwiseSum(Function):
    @staticmethod
    def forward(ctx, pos, neg, pos_mask, neg_mask, surrogate, dense, group):
        if dense:
            method = _PairMatrix(pos, neg, neg_mask, surrogate)
        else:
            method = _IntervalSums(pos, pos_mask, neg, neg_mask, surrogate.tau)
        total, slope = method.sums()
        if group is not None:
            # Sums over negatives add up over the ranks that hold them.
            both = torch.stack([total, slope])
            dist.all_reduce(both, group=group)
            total, slope = both
        # The method keeps views of the inputs: they are saved through autograd
        # so that changing them in place before backward is noticed.
        ctx.method, ctx.dtype = method, pos.dtype
        ctx.save_for_backward(neg, pos_mask, slope)
        return torch.where(pos_mask, total, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        neg, pos_mask, slope = ctx.saved_tensors
        grad = torch.where(pos_mask, grad, 0)
        grad_pos = grad_neg = None
        if ctx.needs_input_grad[0]:
            grad_pos = torch.where(pos_mask, grad * slope, 0).to(ctx.dtype)
        if ctx.needs_input_grad[1]:
            grad_neg = ctx.method.gradient_of_negatives(grad).to(neg.dtype)
        return grad_pos, grad_neg, None, None, None, None, None


def pairwise_surrogate_sum(
    pos: Tensor,
    neg: Tensor,
    surrogate: Surrogate,
    *,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> Tensor:
    """``sum_j l(s_i - t_j)`` for every positive of L lists at once.

    Args:
        pos: (L, P) float scores of the positives, padded.
        neg: (L, N) float scores, any strides.
        surrogate: The pair surrogate l.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative of its list.
            None: all are.
        method: ``'intervals'`` (one-sided Huber only: O((P + N) log P) time,
            O(N) memory), ``'pairs'`` (the pair matrix in blocks, any
            surrogate) or ``'auto'``.
        group: Process group over which the negatives are spread. Every rank
            passes the same ``pos`` and its own ``neg`` and receives the sums
            over all of them; the gradient is that of its own ``neg``.

    Returns:
        (L, P) float64 sums, 0 at padding; differentiable once, in ``pos`` and
        ``neg``. Infinite scores act as +-1e30; NaN gives NaN.

    Raises:
        ValueError: On shapes that do not fit or an unknown method.
        TypeError: If a score tensor is not of a float dtype.
    """
    for name, scores in (('pos', pos), ('neg', neg)):
        if not scores.is_floating_point():
            raise TypeError(
                f'{name} must be of a float dtype, got '
                f'{scores.dtype}; call {name}.float()'
            )
    if pos.dim() != 2 or neg.dim() != 2 or pos.size(0) != neg.size(0):
        raise ValueError(
            'pos and neg must be (lists, scores) with as many lists, got '
            f'shapes {tuple(pos.shape)} and {tuple(neg.shape)}'
        )
    for name, mask, of in (
        ('pos_mask', pos_mask, pos),
        ('neg_mask', neg_mask, neg),
    ):
        if mask is not None and mask.shape != of.shape:
            raise ValueError(
                f'{name} must have shape {tuple(of.shape)}, got '
                f'{tuple(mask.shape)}'
            )
    if method not in ('auto', 'intervals', 'pairs'):
        raise ValueError(
            f"method={method!r} is unknown; use 'auto', 'intervals' or 'pairs'"
        )
    is_huber = isinstance(surrogate, OneSidedHuber)
    if method == 'intervals' and not is_huber:
        raise ValueError(
            "method='intervals' needs the one-sided Huber "
            f'surrogate, got {type(surrogate).__name__}'
        )
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    pairs = pos.numel() * neg.size(1)
    dense = (
        not is_huber
        or method == 'pairs'
        or pos.numel() == 0
        or (method == 'auto' and pairs <= DENSE_PAIRS)
    )
    return _PairwiseSum.apply(
        pos, neg, pos_mask, neg_mask, surrogate, dense, group
    )


def pairwise_surrogate_mean(
    pos: Tensor, neg: Tensor, tau: float, method: str = 'auto'
) -> Tensor:
    """``l_i = mean_j l(s_i - t_j)`` with the one-sided Huber surrogate.

    Source: stable AP (2025), eq. 2.

    Args:
        pos: (n+,) float scores of the positives.
        neg: (n-,) float scores of the negatives.
        tau: Margin in units of the scores, > 0.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        (n+,) means >= 0, float64 if an input is, else float32; 0 where there
        is no negative. Differentiable once in both inputs.

    Raises:
        ValueError: If ``tau`` is not > 0 or an input is not 1-D.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pairwise_surrogate_mean(torch.tensor([1.0, 0.0]),
        ...                         torch.tensor([0.5, -2.0]), tau=1.0)
        tensor([0.1250, 1.0000])
    """
    if pos.dim() != 1 or neg.dim() != 1:
        raise ValueError(
            'pos and neg must be 1-D, got shapes '
            f'{tuple(pos.shape)} and {tuple(neg.shape)}'
        )
    total = pairwise_surrogate_sum(
        pos[None], neg[None], OneSidedHuber(tau), method=method
    )[0]
    dtype = torch.promote_types(
        torch.promote_types(pos.dtype, neg.dtype), torch.float32
    )
    return (total / max(neg.numel(), 1)).to(dtype)
