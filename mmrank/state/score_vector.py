"""Running estimate of the sorted scores of the positives."""

import torch
from torch import Tensor

from mmrank.distributed import all_gather_lists
from mmrank.settings import check_count, check_score_range, check_within, one_of
from mmrank.tensors import as_divisor, check_floats

from .base import SavedState, rows_of_lists


@torch.no_grad()
def interpolate_scores(
    scores: Tensor, length: int, low: float, high: float, mask: Tensor | None = None
) -> Tensor:
    """Scores of a list, or of L lists, stretched to ``length`` points.

    With the n scores of a list in ascending order ``u_1..u_n``, point j of the result lies at ``x =
    j/length`` in interval ``i = floor(n x) + 1`` and is the mean of the line from ``u_{i-1}`` to
    ``u_i`` and the line from ``u_i`` to ``u_{i+1}``. The ends are extrapolated: ``u_0 = 2u_1 -
    u_2`` and ``u_{n+1} = 2u_n - u_{n-1}``, kept within ``[low, high]``. Source: SOPRC (NeurIPS
    2022), algorithm 2, whose "descending" and ``2u_{n-1}`` are misprints.

    Of (n,) float scores in any order, n >= 1, (V,), float64 for float64 scores, else float32; of
    (L, P), padded where ``mask`` is False, (L, V) float64, 0 for a list without scores. ``mask``
    may be float weights >= 0: a score of weight w counts as w scores. Ascending, without gradient.
    A list that holds NaN or inf gives NaN.

    Example:
        >>> interpolate_scores(torch.tensor([0.4, 0.2]), 4, -1.0, 1.0)
        tensor([0.1000, 0.2000, 0.3000, 0.4000])
    """
    check_floats(scores=scores)
    if scores.dim() not in (1, 2) or (scores.dim() == 1 and len(scores) == 0):
        what = 'scores must be (n,) with at least one score, or (lists, scores)'
        raise ValueError(f'{what}, got shape {tuple(scores.shape)}')
    counts = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    if scores.dim() == 1:
        points = interpolate_scores(scores[None], length, low, high, counts[None])[0]
        return points.to(torch.promote_types(scores.dtype, torch.float32))
    if scores.size(1) == 0:
        return scores.new_zeros(scores.size(0), length, dtype=torch.float64)
    mask = counts > 0
    # Padding sorts behind every score; a list with inf or NaN is marked at the end, so what it does
    # to the order is of no account.
    ascending, order = torch.where(mask, scores.double(), torch.inf).sort(dim=1)
    ends = counts.double().gather(1, order).cumsum(1)
    number = ends[:, -1:]

    def score(place: Tensor) -> Tensor:
        """Return u of (L, n) places, 0 for the lowest: a score of weight 2 has two places."""
        index = torch.searchsorted(ends, place.contiguous(), right=True)
        return ascending.gather(1, index.clamp(max=ends.size(1) - 1))

    first = torch.zeros_like(number)
    last = (number.ceil() - 1).clamp(min=0)
    # A list of one score is constant: its neighbours are itself.
    second_u = score(last.clamp(max=1))
    before_last_u = score((last - 1).clamp(min=0))
    # A score outside the declared range stays the end of its list.
    below = (2 * score(first) - second_u).clamp(min=low).minimum(score(first))
    above = (2 * score(last) - before_last_u).clamp(max=high).maximum(score(last))

    point = torch.arange(length, device=scores.device) * number
    # Whole numbers decide the interval: no rounding at its borders.
    interval = point.div(length, rounding_mode='floor')
    share = (point - interval * length) / length
    left = torch.where(interval > 0, score(interval - 1), below)
    here = score(interval)
    right = torch.where(interval + 1 < number, score(interval + 1), above)
    points = (left.lerp(here, share) + here.lerp(right, share)) / 2
    is_finite = (scores.isfinite() | ~mask).all(1, keepdim=True)
    points = torch.where(is_finite, points, torch.nan)
    return torch.where(number > 0, points, 0)


class ScoreVector(SavedState):
    """Score vector v: one for a single ranking, or one per class.

    ``v <- (1 - beta) v + beta phi(s+)`` with phi of :func:`interpolate_scores`, before the loss of
    the batch is computed. Source: SOPRC (NeurIPS 2022), eq. 10 and algorithm 1.

    A row that several lists of a batch share, such as the queries of one class, takes one step with
    the mean of their phi. The first batch sets a row; a list without a score, or with one that is
    not finite in float32, leaves it. A value is clipped where it is further from the value of the
    row than :attr:`REACH` widths of ``score_range`` plus its size; the first time is warned of. The
    state is the same on all ranks and for any world size.

    Each of ``size`` rows has ``length`` points V; ``momentum`` is beta in ``(0, 1]``. Phi may
    extrapolate within ``score_range``. With ``mode='off'`` every list is given the phi of its own
    scores (the paper's ablation without v); a row keeps the phi of the last batch.
    """

    shape_settings = 'num_classes and vector_length'
    REACH = 10.0
    #: (size, length) float32 buffer, in units of the scores; 0 where nothing was seen.
    vector: Tensor
    #: (size,) float64 buffer, batches that each row saw. (A count, as averages of models leave out
    #: what is not floating, and mmengine averages buffers over ranks.)
    num_updates: Tensor

    def __init__(
        self,
        size: int = 1,
        length: int = 100,
        momentum: float = 0.1,
        score_range: tuple[float, float] = (-1.0, 1.0),
        mode: str = 'ema',
    ) -> None:
        super().__init__()
        check_count('size', size)
        check_count('length', length)
        check_within('(0, 1]', momentum=momentum)
        one_of('mode', mode, ('ema', 'off'))
        check_score_range(score_range)
        self.momentum = 1.0 if mode == 'off' else momentum
        self.mode = mode
        self.score_range = score_range
        self.add_state('vector', (size, length))
        self.add_state('num_updates', (size,), dtype=torch.float64)

    def update(
        self,
        *parts: tuple[Tensor, Tensor],
        rows: Tensor | None = None,
        group=None,
        list_weight: Tensor | None = None,
        on_host: bool | None = None,
    ) -> Tensor:
        """Take in the positives of a batch and return (L, length) float32 v for its lists.

        Each of ``parts`` has (l, P) positives of l lists and their mask, bool or floats. Where
        nothing is updated, see :class:`SavedState`, a row that was never seen returns the phi of
        the list itself, of its finite scores. ``rows`` are (L,) int64 rows of the lists, repeated
        or not: the class of a query. None: list i is row i. With ``size`` 1 all lists share the
        row. The ranks of ``group`` hold different lists, or without ``rows`` parts of the same.
        ``list_weight``: (L,) floats >= 0, how often each list counts in the mean of a row.
        ``on_host``: see ``RankedLists``; None: not known.
        """
        if group is not None and rows is None:
            parts = tuple(_of_all_ranks(*part, group) for part in parts)
        points = []
        usable = []
        for pos, mask in parts:
            pos = pos.detach()
            infinite = (mask > 0) & pos.isinf()
            size = self.vector.size(1)
            points.append(interpolate_scores(pos, size, *self.score_range, mask * ~infinite))
            is_finite = ~infinite.any(1) & points[-1].float().isfinite().all(1)
            usable.append((mask > 0).any(1) & is_finite)
        points = torch.cat(points)
        usable = torch.cat(usable).double()
        if list_weight is not None:
            usable = usable * list_weight
        index = rows_of_lists(rows, len(points), len(self.vector))
        if index is None:
            index = torch.arange(len(points), device=points.device).clamp(max=len(self.vector) - 1)
        if self.moves_now(on_host):
            step = points, usable, index
            if group is not None and rows is not None:
                # Lists that differ by rank; ranks may have unlike numbers.
                columns = torch.cat([points, usable[:, None], index.double()[:, None]], dim=1).t()
                columns, mask, _ = all_gather_lists(columns, (usable > 0)[None], group)
                columns = torch.where(mask, columns, 0)
                step = columns[:-2].t().contiguous(), columns[-2], columns[-1].long()
            self._step(*step, on_host)
        points = points.float()
        if self.mode == 'off':
            return points
        seen = self.num_updates[index].unsqueeze(1) > 0
        return torch.where(seen, self.vector[index], points)

    def _step(self, points: Tensor, usable: Tensor, index: Tensor, on_host: bool | None) -> None:
        if len(index) == 0:
            return
        rows = index[:1] if len(self.vector) == 1 else index
        same = (rows[:, None] == index) * usable
        number = same.sum(1, keepdim=True)
        total = same @ torch.where(usable[:, None] > 0, points, 0)
        batch = total / as_divisor(number)
        old = self.vector[rows].double()
        seen = self.num_updates[rows].unsqueeze(1) > 0
        limits = self.score_range, self.REACH
        batch = self.within_reach(batch, number > 0, old, seen, *limits, on_host)
        beta = torch.where(seen, self.momentum, 1.0)
        new = torch.where(number > 0, old + beta * (batch - old), old)
        # Lists of one row all write what the first of them computed, so the order of the writes
        # cannot show.
        first = (rows[:, None] == rows).byte().argmax(1)
        self.vector[rows] = new.float()[first]
        self.num_updates[rows] = self.num_updates[rows] + (number[:, 0] > 0)


def _of_all_ranks(pos: Tensor, mask: Tensor, group) -> tuple[Tensor, Tensor]:
    """Join (L, P) positives and their mask, or weights, of all ranks."""
    weight = mask if mask.is_floating_point() else None
    pos, mask, weight = all_gather_lists(pos, mask > 0, group, weight)
    return pos, mask if weight is None else torch.where(mask, weight, 0)
