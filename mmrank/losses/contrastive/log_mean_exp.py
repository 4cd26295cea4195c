"""Mean exp over the rows of a similarity matrix, its columns, or both.

Each similarity is computed once in forward, whichever of its two sides is an anchor, in strips of
rows that stay in the cache. A strip is kept for backward while the matrix is no larger than the
embeddings, and computed once more if not.

The exponentials are powers of two: ``exp2`` takes half the time of ``exp``, and the factor
``log2(e)`` goes into that of the temperature.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import once_differentiable

#: Similarities at a time, at most.
BLOCK_ENTRIES = 1 << 20
# And at least, whatever the embeddings: below, calls cost more than sums.
_LEAST_ENTRIES = 1 << 16
_LOG2_E = math.log2(math.e)
# More of them than this for each row are found by comparing all.
_MOST_PAIRS = 8


def similarity_strips(
    rows: int, columns: int, width: int, triangle: bool, limit: int
) -> Iterator[tuple[slice, int]]:
    """Cut a matrix of similarities into strips of rows.

    Args:
        rows: Number of rows.
        columns: Number of columns.
        width: Length of the embeddings: a strip with what is computed of it takes less memory than
            they do.
        triangle: Leave out what is left of a strip's own columns: of a symmetric matrix it is
            known.
        limit: Similarities of a strip, unless one row has more.

    Yields:
        The rows of a strip, and its first column.
    """
    entries = max((rows + columns) * width // 2, _LEAST_ENTRIES)
    entries, begin = min(entries, limit), 0
    while begin < rows:
        first = begin if triangle else 0
        end = begin + max(entries // max(columns - first, 1), 1)
        yield slice(begin, min(end, rows)), first
        begin = end


class SameSample:
    """Where row and column of a similarity matrix are of one sample.

    Args:
        row_ids: (n,) integers.
        column_ids: (m,) integers.

    Attributes:
        rows_others: (n,) int64 columns of other samples.
        columns_others: (m,) int64 rows of other samples.
    """

    def __init__(self, row_ids: Tensor, column_ids: Tensor) -> None:
        self.ids, self.pairs = (row_ids, column_ids), None
        n, m = row_ids.numel(), column_ids.numel()
        # Elsewhere the host would have to wait for what it finds.
        on_host = row_ids.device.type == 'cpu'
        if on_host and column_ids is row_ids and _all_differ(row_ids):
            self.rows_others = torch.full((n,), n - 1)
            self.columns_others = self.rows_others
            self._set_pairs(torch.arange(n), torch.arange(n), range(n + 1))
            return
        row_ids, column_ids = (x.long().contiguous() for x in (row_ids, column_ids))
        begin, size, order = _places(row_ids, column_ids)
        self.rows_others = m - size
        self.columns_others = n - _places(column_ids, row_ids)[1]
        if on_host and int(size.sum()) <= _MOST_PAIRS * max(n, 1):
            ends = size.cumsum(0)
            rows = torch.arange(n).repeat_interleave(size)
            place = torch.arange(len(rows)) + (begin + size - ends)[rows]
            self._set_pairs(rows, order[place], [0, *ends.tolist()])

    def _set_pairs(self, rows, columns, ends) -> None:
        self.pairs, self._ends, self._found = (rows, columns), ends, {}

    def inside(self, rows: slice, first: int, last: int) -> Tensor:
        """Index of these entries in the strip ``[rows, first:last]``.

        Returns:
            A mask like the strip, or the places in its memory.
        """
        if self.pairs is None:
            row_ids, column_ids = self.ids
            return row_ids[rows, None] == column_ids[first:last]
        key = rows.start, rows.stop, first
        if key not in self._found:
            part = slice(self._ends[rows.start], self._ends[rows.stop])
            i, j = (x[part] for x in self.pairs)
            if first:
                later = j >= first
                i, j = i[later], j[later]
            place = (i - rows.start) * (last - first) + (j - first)
            self._found[key] = place
        return self._found[key]


def _all_differ(ids: Tensor) -> bool:
    ordered = ids.sort().values
    return bool((ordered[1:] != ordered[:-1]).all())


def _places(ids: Tensor, among: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First place and number of each id in the order of ``among``."""
    ordered, order = among.sort(stable=True)
    begin = torch.searchsorted(ordered, ids)
    return begin, torch.searchsorted(ordered, ids, right=True) - begin, order


def fill(x: Tensor, index: Tensor, value: float) -> None:
    """Set entries of a strip.

    Args:
        x: The strip, which is written to.
        index: What :meth:`SameSample.inside` returned.
        value: The number to set.
    """
    if index.dtype == torch.bool:
        x.masked_fill_(index, value)
    else:
        x.view(-1).index_fill_(0, index, value)


class ExpSums:
    """Sums of exp over the similarities of anchors, strip by strip.

    Args:
        positive: (n,) similarity of each anchor and its positive.
        tau: (n,) temperatures.
    """

    def __init__(self, positive: Tensor, tau: Tensor) -> None:
        self.positive, self.tau = positive, tau
        self.factor = _LOG2_E / tau
        # The largest power of two, the sum of all of them over it, and that
        # of each times its exponent.
        lowest = torch.finfo(positive.dtype).min
        self.best = torch.full_like(positive, lowest)
        self.total = torch.zeros_like(positive)
        self.moment = torch.zeros_like(positive)

    def exponents(self, strip: Tensor, part: slice, dim: int) -> Tensor:
        """``log2 exp(h/tau)`` of a strip, a new tensor.

        Args:
            strip: Similarities.
            part: The anchors they belong to.
            dim: 1 if these are the rows of the strip, 0 if its columns.
        """
        x = strip - self.positive[part].unsqueeze(dim)
        return x.mul_(self.factor[part].unsqueeze(dim))

    def take(self, strip: Tensor, part: slice, dim: int, own: Tensor) -> None:
        """Add a strip to the sums of its anchors."""
        x = self.exponents(strip, part, dim)
        fill(x, own, -torch.inf)
        before = self.best[part]
        best = torch.maximum(before, x.amax(dim))
        x -= best.unsqueeze(dim)
        powers = x.exp2()
        # 0 * -inf is not a number.
        fill(x, own, 0)
        change, total = before - best, self.total[part]
        scale = change.exp2()
        moment = (self.moment[part] + change * total) * scale
        self.best[part] = best
        self.total[part] = total * scale + powers.sum(dim)
        self.moment[part] = moment + x.mul_(powers).sum(dim)

    def log_sum(self) -> Tensor:
        """(n,) ``log sum exp(h/tau)``."""
        return self.best / _LOG2_E + self.total.log()

    def mean_h(self) -> Tensor:
        """(n,) mean of h under the weights ``exp(h/tau)``."""
        return (self.moment / self.total + self.best) / self.factor

    def weights(
        self,
        strip: Tensor,
        part: slice,
        dim: int,
        own: Tensor,
        log2_sum: Tensor,
        per_anchor: Tensor,
    ) -> Tensor:
        """Share of each similarity in the sum of its anchor, times a factor.

        Args:
            strip: See :meth:`exponents`.
            part: See there.
            dim: See there.
            own: Entries that are no negatives.
            log2_sum: (n,) of all anchors.
            per_anchor: (n,) the factor.

        Returns:
            A new tensor like ``strip``.
        """
        x = self.exponents(strip, part, dim)
        x = x.sub_(log2_sum[part].unsqueeze(dim)).exp2_()
        fill(x, own, 0)
        return x.mul_(per_anchor[part].unsqueeze(dim))


class _Matrix:
    """The similarities of rows and columns, or of rows among themselves.

    Args:
        rows: (n, D).
        columns: (m, D), or None for the rows again: of a similarity and its mirror image only one
            is computed.
        same: Entries that are no negatives.
        limit: See :func:`similarity_strips`.
    """

    def __init__(self, rows: Tensor, columns: Tensor | None, same: SameSample, limit: int) -> None:
        self.mirrored = columns is None
        self.rows, self.same, self.limit = rows, same, limit
        self.columns = rows if columns is None else columns

    def strips(self) -> Iterator[tuple[slice, int]]:
        """See :func:`similarity_strips`."""
        return similarity_strips(
            *(len(x) for x in (self.rows, self.columns)),
            self.rows.size(1),
            self.mirrored,
            self.limit,
        )

    def is_small(self) -> bool:
        """Whether it takes no more memory than the embeddings."""
        n, m = len(self.rows), len(self.columns)
        entries = n * m // (2 if self.mirrored else 1)
        return entries <= (n + m) * self.rows.size(1)

    def strip(self, part: slice, first: int) -> Tensor:
        """Similarities of some rows and the columns from ``first`` on."""
        return self.rows[part] @ self.columns[first:].t()

    def directions(self, part: slice, first: int, both: bool):
        """Parts of a strip that belong to the sums of rows and of columns.

        Yields:
            Number of the sums, the anchors, their dimension, the first
            column of the strip that counts, and what is no negative there.
        """
        last = len(self.columns)
        inside = self.same.inside(part, first, last)
        yield 0, part, 1, 0, inside
        if self.mirrored and part.stop < last:
            inside = self.same.inside(part, part.stop, last)
            skipped = part.stop - first
            yield 0, slice(part.stop, last), 0, skipped, inside
        elif both:
            yield 1, slice(0, last), 0, 0, inside


class LogMeanExp(Function):
    """``log mean exp(h/tau)`` of the rows, and of the columns if wanted.

    Called as ``apply(rows, columns, positive, same, limit, *taus)``: ``columns`` is None for the
    rows again, ``positive`` (n,) the similarity
    of each row and its positive, or None where that is the column of the same number, and there is
    one ``tau`` (n,) for each direction.
    """

    @staticmethod
    def forward(ctx, rows, columns, positive, same, limit, *taus):
        matrix = _Matrix(rows, columns, same, limit)
        own = (rows * columns).sum(1) if positive is None else positive
        sums = [ExpSums(own, tau) for tau in taus]
        wanted = any(ctx.needs_input_grad)
        kept = [] if wanted and matrix.is_small() else None
        for part, first in matrix.strips():
            strip = matrix.strip(part, first)
            for k, anchors, dim, skipped, inside in matrix.directions(part, first, len(sums) > 1):
                if strip.numel():
                    sums[k].take(strip[:, skipped:], anchors, dim, inside)
            if kept is not None:
                kept.append(strip)
        outputs = []
        for x, count in zip(sums, (same.rows_others, same.columns_others)):
            mean_h = torch.where(count > 0, x.mean_h(), 0)
            log_mean = x.log_sum() - count.clamp(min=1).log()
            outputs += [log_mean, mean_h]
        ctx.save_for_backward(rows, matrix.columns, own, *taus, *outputs[1::2], *(kept or ()))
        ctx.same, ctx.limit = same, limit
        ctx.mirrored, ctx.pairs = columns is None, positive is None
        ctx.log2_sums = [x.best + x.total.log2() for x in sums]
        ctx.mark_non_differentiable(*outputs[1::2])
        return tuple(outputs)

    @staticmethod
    @once_differentiable('negative_terms')
    def backward(ctx, *grads):
        number = len(ctx.log2_sums)
        rows, columns, positive, *saved = ctx.saved_tensors
        taus, means = saved[:number], saved[number : 2 * number]
        kept = iter(saved[2 * number :])
        matrix = _Matrix(rows, None if ctx.mirrored else columns, ctx.same, ctx.limit)
        counts = ctx.same.rows_others, ctx.same.columns_others
        sums, settings, of_taus = [], [], []
        of_positive = torch.zeros_like(positive)
        for k, tau in enumerate(taus):
            # Without negatives log g is a constant.
            grad = torch.where(counts[k] > 0, grads[2 * k], 0)
            log2_sum = torch.where(counts[k] > 0, ctx.log2_sums[k], 0)
            sums.append(ExpSums(positive, tau))
            settings.append((log2_sum, grad / tau))
            # The weights of an anchor add up to 1.
            of_positive -= grad / tau
            of_taus.append(-grad * means[k] / tau.square())
        with torch.autocast(rows.device.type, enabled=False):
            if ctx.pairs:
                of_rows = columns * of_positive[:, None]
                of_columns = rows * of_positive[:, None]
            else:
                of_rows = of_columns = torch.zeros_like(rows)
                if not ctx.mirrored:
                    of_columns = torch.zeros_like(columns)
            for part, first in matrix.strips():
                strip = next(kept, None)
                if strip is None:
                    strip = matrix.strip(part, first)
                total = None
                for k, anchors, dim, skipped, inside in matrix.directions(part, first, number > 1):
                    weights = sums[k].weights(
                        strip[:, skipped:], anchors, dim, inside, *settings[k]
                    )
                    if total is None:
                        total = weights
                    else:
                        total[:, skipped:] += weights
                of_rows[part].addmm_(total, matrix.columns[first:])
                of_columns[first:].addmm_(total.t(), rows[part])
        return (
            of_rows,
            None if ctx.mirrored else of_columns,
            None if ctx.pairs else of_positive,
            None,
            None,
            *of_taus,
        )
