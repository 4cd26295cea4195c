"""Mean exp over the negatives of each row of a batch.

Of the matrix of similarities each entry is computed once in forward, whichever of its two sides is
an anchor, in strips of rows that stay in the cache. A strip is kept for backward while the matrix
is small or no larger than the embeddings, and computed once more if not. The exponentials are
powers of two: ``exp2`` takes half the time of ``exp``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.autograd import Function, can_sync, once_differentiable

#: Similarities at a time, at most.
BLOCK_ENTRIES = 1 << 20
# And at least, whatever the embeddings: below, calls cost more than sums.
_LEAST_ENTRIES = 1 << 18
# Of matrices that are kept whatever the embeddings: 4 MiB.
_KEPT_ENTRIES = 1 << 20
_LOG2_E = math.log2(math.e)
# More of them than this for each row are found by comparing all.
_MOST_PAIRS = 8


def similarity_strips(
    rows: int, columns: int, width: int, triangle: bool, limit: int
) -> Iterator[tuple[slice, int]]:
    """Cut a matrix of similarities into strips of rows; yields the rows and the first column.

    A strip takes less memory than the embeddings of this ``width``, and has at most ``limit``
    entries unless one row has more. As a ``triangle`` it leaves out the columns before its own.
    """
    entries = max((rows + columns) * width // 2, _LEAST_ENTRIES)
    entries = min(entries, limit)
    begin = 0
    while begin < rows:
        first = begin if triangle else 0
        end = begin + max(entries // max(columns - first, 1), 1)
        yield slice(begin, min(end, rows)), first
        begin = end


class SameSample:
    """Where row and column of a similarity matrix are of one sample.

    ``rows_others`` and ``columns_others`` are the numbers of columns, or rows, of other samples.
    """

    def __init__(self, row_ids: Tensor, column_ids: Tensor) -> None:
        self.ids = (row_ids, column_ids)
        self.pairs = None
        self._found = {}
        n = row_ids.numel()
        m = column_ids.numel()
        # Elsewhere the host would have to wait for what it finds.
        is_seen = can_sync(row_ids)
        if is_seen and column_ids is row_ids and _all_differ(row_ids):
            self.rows_others = self.columns_others = torch.full((n,), n - 1)
            self.pairs = (torch.arange(n), torch.arange(n))
            self._ends = range(n + 1)
            return
        row_ids = row_ids.long().contiguous()
        column_ids = column_ids.long().contiguous()
        begin, size, order = _places(row_ids, column_ids)
        self.rows_others = m - size
        self.columns_others = n - _places(column_ids, row_ids)[1]
        if is_seen and int(size.sum()) <= _MOST_PAIRS * max(n, 1):
            ends = size.cumsum(0)
            rows = torch.arange(n).repeat_interleave(size)
            place = torch.arange(len(rows)) + (begin + size - ends)[rows]
            self.pairs = (rows, order[place])
            self._ends = [0, *ends.tolist()]

    def inside(self, rows: slice, first: int, last: int) -> Tensor:
        """The entries in the strip ``[rows, first:last]``: a mask, or places in its memory."""
        if self.pairs is None:
            row_ids, column_ids = self.ids
            return row_ids[rows, None] == column_ids[first:last]
        key = rows.start, rows.stop, first
        if key not in self._found:
            part = slice(self._ends[rows.start], self._ends[rows.stop])
            i = self.pairs[0][part]
            j = self.pairs[1][part]
            if first:
                later = j >= first
                i = i[later]
                j = j[later]
            self._found[key] = (i - rows.start) * (last - first) + (j - first)
        return self._found[key]


def _all_differ(ids: Tensor) -> bool:
    return bool((ids.sort().values.diff() != 0).all())


def _places(ids: Tensor, among: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First place and number of each id in the order of ``among``, and that order."""
    ordered, order = among.sort(stable=True)
    begin = torch.searchsorted(ordered, ids)
    return begin, torch.searchsorted(ordered, ids, right=True) - begin, order


def fill(x: Tensor, index: Tensor, value: float) -> None:
    """Set entries of a strip, which :meth:`SameSample.inside` found."""
    if index.dtype == torch.bool:
        x.masked_fill_(index, value)
    else:
        x.view(-1).index_fill_(0, index, value)


class ExpSums:
    """Sums of exp over the similarities of anchors, of ``positive`` (n,) with their positives.

    The methods take a strip of similarities, the anchors ``part`` that it belongs to, the dimension
    ``dim`` to sum over (1 if the anchors are its rows) and the ``own`` entries: no negatives.
    """

    def __init__(self, positive: Tensor, tau: Tensor) -> None:
        self.positive = positive
        self.factor = _LOG2_E / tau
        # The largest power of two, the sum of all of them over it, and the sum of each times its
        # exponent.
        self.best = torch.full_like(positive, torch.finfo(positive.dtype).min)
        self.total = torch.zeros_like(positive)
        self.moment = torch.zeros_like(positive)

    def _exponents(self, strip: Tensor, part: slice, dim: int) -> Tensor:
        """``log2 exp(h/tau)`` of a strip, a new tensor."""
        x = strip - self.positive[part].unsqueeze(dim)
        return x.mul_(self.factor[part].unsqueeze(dim))

    def take(self, strip: Tensor, part: slice, dim: int, own: Tensor) -> None:
        """Add a strip to the sums of its anchors."""
        x = self._exponents(strip, part, dim)
        fill(x, own, -torch.inf)
        before = self.best[part]
        best = torch.maximum(before, x.amax(dim))
        x -= best.unsqueeze(dim)
        powers = x.exp2()
        # 0 * -inf is not a number.
        fill(x, own, 0)
        change = before - best
        total = self.total[part]
        scale = change.exp2()
        moment = (self.moment[part] + change * total) * scale
        self.best[part] = best
        self.total[part] = total * scale + powers.sum(dim)
        self.moment[part] = moment + x.mul_(powers).sum(dim)

    def results(self, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n,) log of the mean of exp(h/tau) over ``count``, mean of h, log2 of the sum."""
        log_count = count.clamp(min=1).to(self.total).log()
        log_mean = self.best / _LOG2_E + self.total.log() - log_count
        mean_h = (self.moment / self.total + self.best) / self.factor
        return log_mean, torch.where(count > 0, mean_h, 0), self.best + self.total.log2()

    def weights(self, strip, part: slice, dim: int, own, log2_sum, per_anchor) -> Tensor:
        """Share of each similarity in the sum of its anchor, times a factor of each anchor."""
        x = self._exponents(strip, part, dim)
        x = x.sub_(log2_sum[part].unsqueeze(dim)).exp2_()
        fill(x, own, 0)
        return x.mul_(per_anchor[part].unsqueeze(dim))


def _is_small(rows: Tensor, columns: Tensor, mirrored: bool) -> bool:
    """Whether the similarities take little memory, or no more than the embeddings."""
    n = len(rows)
    m, width = columns.shape
    return n * m // (2 if mirrored else 1) <= max((n + m) * width, _KEPT_ENTRIES)


def _strips(rows, columns, mirrored: bool, same: SameSample, limit: int, both: bool, kept=()):
    """Yield the rows of each strip, its first column, the strip, and whose sums it is part of.

    That is the number of the sums (1 are the sums of columns), the anchors, their dimension, the
    first column of the strip that counts, and the entries that are not negatives there. Where rows
    and columns are ``mirrored``, one of a similarity and its mirror image is computed.
    """
    kept = iter(kept)
    last, width = columns.shape
    for part, first in similarity_strips(len(rows), last, width, mirrored, limit):
        strip = next(kept, None)
        if strip is None:
            strip = rows[part] @ columns[first:].t()
        inside = same.inside(part, first, last)
        sides = [(0, part, 1, 0, inside)]
        if mirrored and part.stop < last:
            inside = same.inside(part, part.stop, last)
            sides.append((0, slice(part.stop, last), 0, part.stop - first, inside))
        elif both:
            sides.append((1, slice(0, last), 0, 0, inside))
        yield part, first, strip, sides


class LogMeanExp(Function):
    """``log mean exp(h/tau)`` of the rows, and of the columns if there is a second ``tau`` (n,).

    ``columns`` is None for the rows again, ``positive`` (n,) the similarity of each row and its
    positive, or None where that is the column of the same number. Returns also the mean of h of
    each direction, without gradient.
    """

    @staticmethod
    def forward(ctx, rows, columns, positive, same, limit, tau, *others):
        taus = tau, *others  # torch.compile (2.12) drops ctx before *taus, where they are two
        ctx.mirrored = columns is None
        ctx.pairs = positive is None
        columns = rows if columns is None else columns
        own = (rows * columns).sum(1) if positive is None else positive
        sums = [ExpSums(own, tau) for tau in taus]
        small = _is_small(rows, columns, ctx.mirrored)
        kept = [] if any(ctx.needs_input_grad) and small else None
        strips = _strips(rows, columns, ctx.mirrored, same, limit, len(taus) > 1)
        for _, _, strip, sides in strips:
            for k, anchors, dim, skipped, inside in sides:
                if strip.numel():
                    sums[k].take(strip[:, skipped:], anchors, dim, inside)
            if kept is not None:
                kept.append(strip)
        counts = same.rows_others, same.columns_others
        log_means, means, ctx.log2_sums = zip(*[x.results(c) for x, c in zip(sums, counts)])
        ctx.save_for_backward(rows, columns, own, *taus, *means, *(kept or ()))
        ctx.same = same
        ctx.limit = limit
        ctx.mark_non_differentiable(*means)
        return *log_means, *means

    @staticmethod
    @once_differentiable('negative_terms')
    def backward(ctx, *grads):
        number = len(ctx.log2_sums)
        rows, columns, positive, *saved = ctx.saved_tensors
        taus = saved[:number]
        means = saved[number : 2 * number]
        kept = saved[2 * number :]
        counts = ctx.same.rows_others, ctx.same.columns_others
        sums = []
        settings = []
        of_taus = []
        of_positive = torch.zeros_like(positive)
        for grad, count, tau, mean, log2_sum in zip(grads, counts, taus, means, ctx.log2_sums):
            # Without negatives log g is a constant.
            grad = torch.where(count > 0, grad, 0)
            sums.append(ExpSums(positive, tau))
            settings.append((torch.where(count > 0, log2_sum, 0), grad / tau))
            # The weights of an anchor add up to 1.
            of_positive -= grad / tau
            of_taus.append(-grad * mean / tau.square())
        with torch.autocast(rows.device.type, enabled=False):
            if ctx.pairs:
                of_rows = columns * of_positive[:, None]
                of_columns = rows * of_positive[:, None]
            else:
                of_rows = of_columns = torch.zeros_like(rows)
                if not ctx.mirrored:
                    of_columns = torch.zeros_like(columns)
            strips = _strips(rows, columns, ctx.mirrored, ctx.same, ctx.limit, number > 1, kept)
            for part, first, strip, sides in strips:
                total = strip
                for k, anchors, dim, skipped, inside in sides:
                    own = strip[:, skipped:]
                    weights = sums[k].weights(own, anchors, dim, inside, *settings[k])
                    if total is strip:
                        total = weights
                    else:
                        total[:, skipped:] += weights
                of_rows[part].addmm_(total, columns[first:])
                of_columns[first:].addmm_(total.t(), rows[part])
                # The next strip takes their memory.
                strip = own = None
        of_columns = None if ctx.mirrored else of_columns
        return of_rows, of_columns, None if ctx.pairs else of_positive, None, None, *of_taus


@dataclass
class NegativeTerms:
    """(n,) inputs of a global contrastive loss, of as many anchors.

    ``log_mean`` is ``log g = log mean_z exp(h(z)/tau)``, -inf without negatives, and ``mean_h`` the
    mean of h under the weights ``exp(h/tau)``, 0 without negatives; it has no gradient. ``count``
    is the int64 number of negatives.
    """

    log_mean: Tensor
    mean_h: Tensor
    count: Tensor

    @property
    def log_count(self) -> Tensor:
        """(n,) log of the number of negatives; 0 without."""
        return self.count.clamp(min=1).to(self.log_mean).log()


def negative_terms(
    anchors: Tensor,
    positives: Tensor,
    keys: Tensor,
    tau: Tensor | float,
    anchor_ids: Tensor,
    key_ids: Tensor,
    block_entries: int = BLOCK_ENTRIES,
) -> NegativeTerms:
    """Compare (n, D) anchors a and their positives a+ with (m, D) keys z of other samples.

    ``h(z) = <a, z> - <a, a+>`` and ``g = mean_z exp(h(z)/tau)``. Source: iSogCLR (ICML 2023), eq.
    11, 15 and 16. No exponential is formed that is above 1. Where anchors and keys are one tensor,
    and their ids too, a similarity is computed for both of its samples at once. ``tau`` > 0, one or
    (n,), gets the gradient ``d log g/d tau = -mean_h/tau^2`` if it requires it. At most
    ``block_entries`` similarities are there at a time.
    """
    n = anchors.size(0)
    m = keys.size(0)
    if (
        positives.shape != anchors.shape
        or keys.shape[1:] != anchors.shape[1:]
        or anchor_ids.shape != (n,)
        or key_ids.shape != (m,)
    ):
        raise ValueError(
            'anchors and positives must be (n, D), keys (m, D) and the ids (n,) and (m,); got '
            f'{tuple(anchors.shape)}, {tuple(positives.shape)}, {tuple(keys.shape)}, '
            f'{tuple(anchor_ids.shape)} and {tuple(key_ids.shape)}'
        )
    columns = None if keys is anchors and key_ids is anchor_ids else keys
    return _terms(anchors, columns, positives, [tau], anchor_ids, key_ids, block_entries)[0]


def _terms(rows, columns, positives, taus, row_ids, column_ids, block_entries=BLOCK_ENTRIES):
    """List of the terms of the rows, and of the columns if there are two temperatures.

    ``columns`` None are the rows again, ``positives`` None the columns.
    """
    dtype = torch.promote_types(rows.dtype, torch.float32)
    rows = rows.to(dtype)
    columns = None if columns is None else columns.to(dtype)
    positives = None if positives is None else positives.to(dtype)
    # h/tau of 400 needs the full mantissa: no autocast here.
    with torch.autocast(rows.device.type, enabled=False):
        own = None if positives is None else (rows * positives).sum(1)
        taus = [torch.as_tensor(x, dtype=dtype, device=rows.device).expand(len(rows)) for x in taus]
        same = SameSample(row_ids, column_ids)
        found = LogMeanExp.apply(rows, columns, own, same, block_entries, *taus)
    counts = (same.rows_others, same.columns_others)
    number = len(taus)
    return [NegativeTerms(*x) for x in zip(found[:number], found[number:], counts)]


def two_view_terms(
    view1: Tensor,
    view2: Tensor,
    tau: Tensor | float,
    ids: Tensor | None = None,
    keys: tuple[Tensor, Tensor, Tensor] | None = None,
) -> NegativeTerms:
    """Terms of 2B anchors: every (B, D) view against both views of all other samples.

    Source: iSogCLR (ICML 2023), eq. 11. The temperature is one, or (B,), one per sample; without
    ``ids`` all rows differ. ``keys`` are (M, D) first and second views and (M,) samples to draw the
    negatives from, the samples of all ranks, instead of the batch.
    """
    ids = _checked_ids(view1, view2, ids)
    if isinstance(tau, Tensor) and tau.dim():
        tau = tau.repeat(2)
    anchors = torch.cat([view1, view2])
    anchor_ids = ids.repeat(2)
    all_views = anchors
    all_ids = anchor_ids
    if keys is not None:
        all_views = torch.cat(keys[:2])
        all_ids = keys[2].repeat(2)
    positives = torch.cat([view2, view1])
    return negative_terms(anchors, positives, all_views, tau, anchor_ids, all_ids)


def two_modality_terms(
    view1: Tensor,
    view2: Tensor,
    tau1: Tensor | float,
    tau2: Tensor | float,
    ids: Tensor | None = None,
    keys: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[NegativeTerms, NegativeTerms]:
    """Terms of both modalities of B pairs: each view against the other one of all other pairs.

    Source: iSogCLR (ICML 2023), eq. 15 and 16. See :func:`two_view_terms` for the arguments.
    """
    ids = _checked_ids(view1, view2, ids)
    if keys is None:
        of_view1, of_view2 = _terms(view1, view2, None, [tau1, tau2], ids, ids)
        return of_view1, of_view2
    all_view1, all_view2, all_ids = keys
    return (
        negative_terms(view1, view2, all_view2, tau1, ids, all_ids),
        negative_terms(view2, view1, all_view1, tau2, ids, all_ids),
    )


def check_views(view1: Tensor, view2: Tensor) -> None:
    """Raise ValueError unless both are (n, D)."""
    if view1.dim() != 2 or view1.shape != view2.shape:
        raise ValueError(
            'view1 and view2 must be embeddings (samples, length) of the same samples, got shapes '
            f'{tuple(view1.shape)} and {tuple(view2.shape)}'
        )


def _checked_ids(view1: Tensor, view2: Tensor, ids: Tensor | None) -> Tensor:
    check_views(view1, view2)
    return torch.arange(view1.size(0), device=view1.device) if ids is None else ids
