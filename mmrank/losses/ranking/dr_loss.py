"""DR loss: distributional ranking of positives above negatives."""

import math

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import Function, once_differentiable
from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists, like_scores, probabilities
from mmrank.losses.options import LogitOptions, Unpack
from mmrank.tensors import score_blocks

from .error_driven import target_lists

# Of the paper. Temperatures of the positives and of the negatives: the smaller, the more the worst
# of them counts.
POS_LAMBDA = 1.0
NEG_LAMBDA = 0.1 / math.log(3.5)
# L of the smoothed hinge, and its factor, the authors' tau.
SHARPNESS = 6.0
SCALE = 4.0


def dr_loss(logits: Tensor, targets: Tensor, *, margin: float = 0.5) -> Tensor:
    """DR loss of each list, of the sigmoid p of the logits.

    ``4/L log(1 + exp(L (P- - P+ + margin)))`` with L = 6, ``P- = sum_j q_j p_j``, ``q = softmax(p /
    lambda-)`` over the negatives, ``lambda- = 0.1 / log 3.5``, and ``P+`` the same over the
    positives with ``softmax(-p)``. Source: Qian et al., DR Loss: Improving Object Detection by
    Distributional Ranking, CVPR 2020, eqs. 6 to 9, whose sum over images is over lists here.

    See :func:`ap_loss` for the lists and :class:`mmrank.losses.DRLoss` for the margin.

    Returns:
        Scalar, or (L,) losses, > 0, at least float32. Without positives ``P+ = 1``, as in the
        authors' code: the negatives are still pushed down. 0 for a list of which nothing counts.

    Example:
        >>> dr_loss(torch.tensor([2.0, 0.0, -3.0]), torch.tensor([0, 1, 0]))
        tensor(3.5265)
    """
    lists = target_lists(logits, targets)
    lists.pos = probabilities(lists.pos)
    lists.scores = probabilities(lists.scores)
    return like_scores(_dr(lists, margin), logits)


def _dr(lists: RankedLists, margin: float) -> Tensor:
    """DR loss of lists of probabilities."""
    low = softmax_mean(lists.pos, -POS_LAMBDA, lists.pos_mask)
    high = softmax_mean(lists.scores, NEG_LAMBDA, lists.is_negative, lists.group)
    low = torch.where(lists.has_positive, low, 1)
    gap = SHARPNESS * (high - low + margin)
    losses = SCALE / SHARPNESS * torch.nn.functional.softplus(gap, threshold=50)
    return torch.where(_counts(lists), losses, 0)


def _counts(lists: RankedLists) -> Tensor:
    """(L,) bool, False for a list whose scores are all left out, such as a group of weight 0."""
    return lists.has_positive | (lists.num_negatives() > 0)


def _weights(values, mask, temperature, peak):
    """``exp((values - peak)/temperature)``, 0 where masked out."""
    return ((values - peak) / temperature).exp_().masked_fill_(~mask, 0)


def _blocks(values, mask):
    """Yield columns with their values, at least float32, 0 where masked out, and their mask."""
    wide = torch.promote_types(values.dtype, torch.float32)
    for part in score_blocks(values):
        own = mask[:, part]
        yield part, values[:, part].to(wide).masked_fill(~own, 0), own


def _peak(values, mask, is_positive):
    """(L, 1) largest value that counts; of a negative sign the smallest."""
    wide = torch.promote_types(values.dtype, torch.float32)
    least = torch.finfo(wide).min
    peak = values.new_full((values.size(0), 1), least, dtype=wide)
    for _, part, own in _blocks(values, mask):
        signed = (part if is_positive else -part).masked_fill(~own, least)
        peak = torch.maximum(peak, signed.amax(1, keepdim=True))
    return peak


class _SoftmaxMean(Function):
    @staticmethod
    def forward(ctx, values, mask, temperature, group):
        # Of a negative temperature the smallest value has the peak.
        peak = _peak(values, mask, temperature > 0)
        if group is not None:
            dist.all_reduce(peak, dist.ReduceOp.MAX, group=group)
        peak = peak if temperature > 0 else -peak
        both = values.new_zeros(2, values.size(0), dtype=torch.float64)
        for _, part, own in _blocks(values, mask):
            weight = _weights(part, own, temperature, peak)
            both[0] += weight.sum(1, dtype=torch.float64)
            both[1] += (weight * part).sum(1, dtype=torch.float64)
        if group is not None:
            dist.all_reduce(both, group=group)
        total, moment = both
        mean = torch.where(total == 0, 0, moment / total.clamp(min=1e-300))
        ctx.temperature = temperature
        ctx.save_for_backward(values, mask, peak, total, mean)
        return mean

    @staticmethod
    @once_differentiable('dr_loss')
    def backward(ctx, grad):
        values, mask, peak, total, mean = ctx.saved_tensors
        scale = torch.where(total == 0, 0, grad / total.clamp(min=1e-300))
        out = torch.empty_like(values, memory_format=torch.contiguous_format)
        for columns, part, own in _blocks(values, mask):
            weight = _weights(part, own, ctx.temperature, peak)
            slope = (part - mean.unsqueeze(1)) / ctx.temperature + 1
            out[:, columns] = weight * slope * scale.unsqueeze(1)
        return out, None, None, None


def softmax_mean(values: Tensor, temperature: float, mask: Tensor, group=None) -> Tensor:
    """(L,) float64 ``sum_j q_j v_j`` of each list with ``q = softmax(v / temperature)``.

    Tends to the mean for a large temperature, to the maximum as it falls to 0 from above and to the
    minimum as it rises to 0 from below; 0 for a list without values. Differentiable once, the
    weights q included. Over a ``group`` the values are spread: every rank receives the mean over
    all of them and the gradient of its own.
    """
    return _SoftmaxMean.apply(values, mask, temperature, group)


class DRLoss(StatelessRankingLoss):
    """:func:`mmrank.functional.dr_loss` of a batch.

    Scores are probabilities with a fixed margin, so they need no centring at test time.

    Args:
        margin: Margin between positives and negatives, in probability.
        **kwargs: See :class:`mmrank.losses.RankingLoss`, except ``activation``. The mean of
            ``per_class`` is over all classes: those without a positive still push their negatives
            down.
    """

    zero_without_positives = False
    cost = 'scores'

    def __init__(self, margin: float = 0.5, **kwargs: Unpack[LogitOptions]) -> None:
        super().__init__(activation='sigmoid', **kwargs)
        self.margin = margin

    def losses(self, lists: RankedLists) -> Tensor:
        return _dr(lists, self.margin)

    def counted(self, lists: RankedLists) -> Tensor:
        """One without a positive has a loss, too."""
        return _counts(lists)
