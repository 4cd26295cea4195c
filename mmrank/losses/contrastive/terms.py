"""Samples of a batch, and the mean exp over the negatives of each of them.

Similarities are computed in strips of rows, each entry once, whichever of its two sides is an
anchor. The strips are kept for backward while they are few, and computed once more if not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import Function, once_differentiable
from mmrank.distributed import all_gather_rows, join
from mmrank.tensors import at_least_float32, none_absent

#: Similarities at a time, at most, so that they stay in the cache; but one row at least.
BLOCK_ENTRIES = 1 << 20
# And at least, whatever the embeddings: below, calls cost more than sums.
_LEAST_ENTRIES = 1 << 18
# Similarities that are kept whatever the embeddings: 4 MiB.
_KEPT_ENTRIES = 1 << 20


@dataclass
class Samples:
    """Samples of a batch, of one rank or of all."""

    views: Sequence[Tensor]  # (n, D) rows of each
    ids: Tensor  # (n,) int64; of one id are no negatives of each other
    weight: Tensor | None = None  # (n,) floats, how many samples each is; None: one
    labels: Tensor | None = None  # (n,) int64; of one label are positives of each other

    def of_all_ranks(self, counts: Sequence[int], group) -> 'Samples':
        """The samples of all ranks, ``counts`` of each; a gradient is summed over the ranks."""

        def joined(numbers: Tensor) -> Tensor:
            return all_gather_rows(numbers[:, None], counts, group)[:, 0]

        views = all_gather_rows(join(self.views, 1), counts, group).chunk(len(self.views), 1)
        weight = None if self.weight is None else joined(self.weight)
        labels = None if self.labels is None else joined(self.labels)
        return Samples(views, joined(self.ids), weight, labels)

    def with_rows(self, function: Callable[[Tensor], Tensor]) -> 'Samples':
        """The samples with a function of their rows."""
        return replace(self, views=[function(rows) for rows in self.views])

    def of_view(self, number: int) -> 'Samples':
        """The samples with one of their views."""
        return replace(self, views=[self.views[number]])

    def views_as_samples(self) -> 'Samples':
        """Each view as a sample of its own, of one view; they share their ids."""
        number = len(self.views)
        weight = None if self.weight is None else self.weight.repeat(number)
        return Samples([torch.cat(tuple(self.views))], self.ids.repeat(number), weight)


def number_samples(
    ids: Tensor, among: Tensor, weight: Tensor | None = None
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Number the samples of (n,) and (m,) ids, and count the others of the former in the latter.

    Returns (n,) and (m,) float32 whole numbers, equal where the ids are, exact below 2^24; and (n,)
    int64 counts, or float64 sums of (m,) weights. Floats are compared in a tenth of the time of
    integers.
    """
    ordered, order = among.sort()
    begin = torch.searchsorted(ordered, ids)
    end = torch.searchsorted(ordered, ids, right=True)
    numbers = others = (begin + end).float()
    if among is not ids:
        others = torch.searchsorted(ordered, among)
        others = (others + torch.searchsorted(ordered, among, right=True)).float()
    if weight is None:
        return (numbers, others), begin + len(among) - end
    sums = pad(weight.double()[order].cumsum(0), (1, 0))
    return (numbers, others), sums[begin] + (sums[-1] - sums[end])


def weighted_sum(x: Tensor, dim: int, weight: Tensor | None) -> Tensor:
    """Sum of a matrix over a dimension, whose entries may have weights."""
    if weight is None:
        return x.sum(dim)
    return (x if dim else x.t()).to(weight.dtype) @ weight


class _ExpSums:
    """Sums over the negatives of (k, n) anchors: of ``exp((s - best)/tau)``, and of s times it.

    The methods take a strip of similarities s, the anchors ``part`` of a ``side`` that it belongs
    to, and the dimension ``dim`` to sum over: 1 if the anchors are its rows; and the negatives
    ``others`` that it has. A ``weight`` of all negatives is a factor of their exponentials.
    """

    def __init__(self, tau: Tensor, weight: Tensor | None) -> None:
        self.tau = tau
        self.weight = weight
        # Far above the entries that are no negatives, whose exponential is 0.
        self.best = torch.full_like(tau, torch.finfo(tau.dtype).min / 4)
        self.total = torch.zeros_like(tau)
        self.moment = torch.zeros_like(tau)

    def add(self, strip: Tensor, side: int, part: slice, dim: int, others: slice) -> None:
        """Add a strip to the sums of its anchors."""
        at = side, part
        best = torch.maximum(self.best[at], strip.amax(dim))
        scale = ((self.best[at] - best) / self.tau[at]).exp()
        self.best[at] = best
        powers = self.powers(strip, side, part, dim, others)
        self.total[at] = scale * self.total[at] + powers.sum(dim)
        self.moment[at] = scale * self.moment[at] + powers.mul_(strip).sum(dim)

    def powers(self, strip: Tensor, side: int, part: slice, dim: int, others: slice) -> Tensor:
        """``w exp((s - best)/tau)``, at most w, which is 1 without weights."""
        x = strip - self.best[side, part].unsqueeze(dim)
        # exp2 takes a third of the time of exp. No global: of dynamic shapes the compiler takes one
        # for a number that may change.
        log2_e = 1.4426950408889634
        x.mul_((log2_e / self.tau[side, part]).unsqueeze(dim)).exp2_()
        return x if self.weight is None else x.mul_(self.weight[others].unsqueeze(1 - dim))


def negative_strips(
    rows: Tensor, columns: Tensor, numbers: tuple, is_mirrored: bool = False, kept: Sequence = ()
) -> Iterator[tuple]:
    """Compute inner products in strips of rows, of less memory than the embeddings.

    Where row and column are of one sample, of equal ``numbers``, they are far below any other.
    Yields the rows of a strip, its first column, the strip, and the columns that are anchors there.
    Those are all, or where the columns are the rows again, the ones after its own rows; the ones
    before them are left out. ``kept`` are strips of an earlier call.
    """
    row_numbers, column_numbers = numbers
    n = len(rows)
    m, width = columns.shape
    entries = min(max((n + m) * width // 2, _LEAST_ENTRIES), BLOCK_ENTRIES)
    rest = iter(kept)
    begin = 0
    while begin < n:
        first = begin if is_mirrored else 0
        end = min(begin + max(entries // max(m - first, 1), 1), n)
        part = slice(begin, end)
        strip = next(rest, None)
        if strip is None:
            strip = rows[part] @ columns[first:].t()
            is_same = torch.empty_like(strip)
            torch.eq(row_numbers[part, None], column_numbers[first:], out=is_same)
            strip.add_(is_same, alpha=torch.finfo(strip.dtype).min / 2)
        yield part, first, strip, slice(end if is_mirrored else 0, None)
        begin = end


class _LogSumExp(Function):
    """``log sum exp(h/tau)`` and mean of h of the rows, and of the columns, in (1 or 2, n).

    ``columns`` is None for the rows again; they have terms if ``tau`` is (2, n). Row i has the
    similarity ``positive`` (n,) with its positive, and so has column i. The mean has no gradient.
    The (m,) weights of the columns are the rows' as well where columns have terms.
    """

    @staticmethod
    def forward(ctx, rows, columns, numbers, positive, tau, weight):
        ctx.is_mirrored = columns is None
        columns = rows if columns is None else columns
        ctx.both = ctx.is_mirrored or len(tau) == 2
        if weight is not None and not none_absent(weight):
            # The absent must not be the most similar: in their place stands the heaviest.
            place = torch.arange(len(weight), device=weight.device)
            place = torch.where(weight > 0, place, weight.argmax())
            columns = columns[place]
            numbers = numbers[0], numbers[1][place]
            if ctx.both:
                rows = columns if ctx.is_mirrored else rows[place]
                numbers = numbers[1], numbers[1]
        ctx.numbers = numbers
        sums = _ExpSums(tau, weight)
        m, width = columns.shape
        entries = len(rows) * m // (2 if ctx.is_mirrored else 1)
        is_small = entries <= max((len(rows) + m) * width, _KEPT_ENTRIES)
        kept = []
        for part, first, strip, later in negative_strips(rows, columns, numbers, ctx.is_mirrored):
            sums.add(strip, 0, part, 1, slice(first, None))
            if ctx.both:
                sums.add(strip[:, later.start - first :], -1, later, 0, part)
            if is_small:
                kept.append(strip)
        mean_h = torch.where(sums.total != 0, sums.moment / sums.total - positive, 0)
        ctx.sums = sums
        ctx.save_for_backward(rows, columns, positive, tau, mean_h, *kept)
        ctx.mark_non_differentiable(mean_h)
        return (sums.best - positive) / tau + sums.total.log(), mean_h

    @staticmethod
    @once_differentiable('negative_terms')
    def backward(ctx, grad, _):
        rows, columns, _, tau, mean_h, *kept = ctx.saved_tensors
        sums = ctx.sums
        # Without negatives the sum is a constant.
        slope = torch.where(sums.total != 0, grad / tau, 0)
        factor = slope / torch.where(sums.total != 0, sums.total, 1)
        of_rows = torch.zeros_like(rows)
        of_columns = of_rows if ctx.is_mirrored else torch.zeros_like(columns)
        strips = negative_strips(rows, columns, ctx.numbers, ctx.is_mirrored, kept)
        for part, first, strip, later in strips:
            others = slice(first, None)
            weights = sums.powers(strip, 0, part, 1, others).mul_(factor[0, part, None])
            if ctx.both:
                mirror = sums.powers(strip[:, later.start - first :], -1, later, 0, part)
                weights[:, later.start - first :] += mirror.mul_(factor[-1, later])
            of_rows[part].addmm_(weights, columns[first:])
            of_columns[first:].addmm_(weights.t(), rows[part])
            # The next strip takes their memory.
            strip = mirror = None
        # The weights of an anchor add up to 1.
        of_positive = -slope.sum(0)
        of_tau = -slope * mean_h / tau
        return of_rows, None if ctx.is_mirrored else of_columns, None, of_positive, of_tau, None


@dataclass
class NegativeTerms:
    """Inputs of a global contrastive loss, (n,) of the anchors or (2, n) of two views.

    ``log_mean`` is ``log g = log mean_z exp(h(z)/tau)``, -inf without negatives, and ``mean_h`` the
    mean of h under the weights ``exp(h/tau)``, 0 without negatives; it has no gradient. ``count``
    is the int64 number of negatives, or the float64 sum of their weights.
    """

    log_mean: Tensor
    mean_h: Tensor
    count: Tensor
    log_positives: Tensor | None = None  # log sum of exp(h/tau) of the own positives; None: 0

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.log_mean, self.mean_h, self.count

    @property
    def log_count(self) -> Tensor:
        """Log of the number of negatives; 0 without."""
        return torch.where(self.count > 0, self.count, 1).to(self.log_mean).log()

    def towards_positives(
        self, similarities: Tensor, total: Tensor, count: Tensor, tau: Tensor | float
    ) -> 'NegativeTerms':
        """The terms with h relative to the mean similarity with several positives.

        Those are the samples' other views, with (k, ..., n) ``similarities``, whose first the terms
        are relative to, and samples of the label, with a sum ``total`` of ``count``. The logarithm
        of the softmax is linear in the similarity of the positive, so its mean over the positives
        is the one of the mean. Source: Khosla et al., Supervised Contrastive Learning, NeurIPS
        2020, eq. 2.
        """
        mean = (similarities.sum(0) + total) / (len(similarities) + count)
        shift = similarities[0] - mean
        mean_h = torch.where(self.count > 0, self.mean_h + shift.detach(), 0)
        log_positives = ((similarities - mean) / tau).logsumexp(0)
        return NegativeTerms(self.log_mean + shift / tau, mean_h, self.count, log_positives)


def negative_terms(
    anchors: Samples, positives: Tensor, keys: Samples, tau: Tensor | float
) -> NegativeTerms:
    """Compare anchors a of one view and their (n, D) positives a+ with keys z of other samples.

    ``h(z) = <a, z> - <a, a+>`` and ``g = mean_z exp(h(z)/tau)``. Source: iSogCLR (ICML 2023), eq.
    11, 15 and 16. No exponential is formed that is above 1. Where the keys are the anchors, a
    similarity is computed for both of its samples at once. ``tau`` > 0, one or (n,), gets the
    gradient ``d log g/d tau = -mean_h/tau^2`` if it requires it. With a tau of (2, n) the keys are
    anchors, too, and must be the positives: the terms are (2, n). A key counts by its weight; as an
    anchor one of 0 has no gradient.
    """
    numbers, count = number_samples(anchors.ids, keys.ids, keys.weight)
    rows = at_least_float32(anchors.views[0])
    columns = None if keys is anchors else at_least_float32(keys.views[0])
    # h/tau of 400 needs the full mantissa: no autocast here.
    with torch.autocast(rows.device.type, enabled=False):
        positive = (rows * at_least_float32(positives)).sum(1)
        tau = torch.as_tensor(tau, dtype=rows.dtype, device=rows.device)
        tau = tau.expand(*tau.shape[:-1], len(rows))
        weight = None if keys.weight is None else keys.weight.to(rows.dtype)
        log_sum, mean_h = _LogSumExp.apply(
            rows, columns, numbers, positive, torch.atleast_2d(tau), weight
        )
    log_sum = log_sum.view(tau.shape)
    # An absent anchor, and one whose negatives weigh next to nothing, has none: 0, not -inf.
    count = torch.where(log_sum == -torch.inf, 0, count)
    terms = NegativeTerms(log_sum, mean_h.view(tau.shape), count)
    terms.log_mean = log_sum - terms.log_count
    return terms


def _places(numbers: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) and (m,) int64 below m, equal where (n,) and (m,) integers are."""
    ordered = among.sort().values
    return torch.searchsorted(ordered, numbers), torch.searchsorted(ordered, among)


def label_mates(rows: Tensor, anchors: Samples, keys: Samples) -> tuple[Tensor, Tensor]:
    """(n, D) sum of the (m, D) rows of the keys with the label of each anchor; their number.

    The keys of the sample itself are left out; a key counts by its weight.
    """
    rows = pad(rows, (0, 1), value=1.0)
    if keys.weight is not None:
        rows = rows * keys.weight[:, None]
    labels = cast(tuple[Tensor, Tensor], (anchors.labels, keys.labels))
    label, all_label = _places(*labels)
    sample, all_sample = _places(anchors.ids, keys.ids)
    itself, all_itself = _places(label * len(rows) + sample, all_label * len(rows) + all_sample)
    empty = torch.zeros_like(rows)
    sums = empty.index_add(0, all_label, rows).index_select(0, label)
    sums = sums - empty.index_add(0, all_itself, rows).index_select(0, itself)
    return sums[:, :-1], sums[:, -1]
