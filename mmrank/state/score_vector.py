"""Running estimate of the sorted positive scores of the data set."""

import torch
from torch import Tensor

from mmrank.distributed import all_gather_lists
from mmrank.state.score_interpolation import interpolate_scores

from .saved_state import SavedState
from .updates import OutlierWarning, check_rows, fits_float32, inside_backward, within_reach

MODES = ('ema', 'off')


class ScoreVector(SavedState):
    """Score vector v: one for a single ranking, or one per class.

    ``v <- (1 - beta) v + beta phi(s+)`` with phi of
    :func:`mmrank.functional.interpolate_scores`, before the loss of the
    batch is computed. Source: SOPRC (NeurIPS 2022), eq. 10 and algorithm 1.

    A row that several lists of a batch share, such as the queries of one class, takes one step with
    the mean of their phi. The first batch sets a row; a list without a score, or with one that is
    not finite in float32, leaves it. A value is clipped where it is further from that of the row
    than :attr:`REACH` widths of ``score_range`` plus its size; the first time is warned of. The
    state is the same on all ranks and for any world size.

    Modes:
        ``ema``: the formula unchanged.
        ``off``: every list is given the phi of its own scores (the paper's ablation without v); a
            row keeps that of the last batch.

    Args:
        size: Number of rows: 1 for a single ranking, C for one per class.
        length: Number of points V of a row, >= 1.
        momentum: beta in ``(0, 1]``, the weight of the new batch.
        score_range: Range of the values that phi may extrapolate to.
        mode: One of ``ema``, ``off``.

    Attributes:
        vector: (size, length) float32 buffer, in units of the scores; 0 where nothing was seen.
        num_updates: (size,) int64 buffer, batches that each row saw. (A
            count, as mmengine averages buffers over ranks and bool has no mean.)

    Raises:
        ValueError: On a parameter out of range.
    """

    shape_settings = 'num_classes and vector_length'
    REACH = 10.0
    vector: Tensor
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
        for name, value in (('size', size), ('length', length)):
            if not (isinstance(value, int) and value >= 1):
                raise ValueError(f'{name} must be an int >= 1, got {value!r}')
        if not 0 < momentum <= 1:
            raise ValueError(f'momentum must be in (0, 1], got {momentum!r}')
        if mode not in MODES:
            raise ValueError(f'mode={mode!r} is unknown; use one of {MODES}')
        low, high = score_range
        if not low < high:
            raise ValueError(
                f'score_range must be (low, high) with low < high, got {score_range!r}'
            )
        self.momentum, self.mode = momentum, mode
        self.score_range = (float(low), float(high))
        self._warning = OutlierWarning('a positive score')
        self.register_buffer('vector', torch.zeros(size, length))
        self.register_buffer('num_updates', torch.zeros(size, dtype=torch.long))

    def _apply(self, fn, recurse=True):
        # model.half() must not round the state: steps of beta would vanish.
        vector = self.vector
        super()._apply(fn, recurse)
        if self.vector.dtype != vector.dtype:
            self.vector = vector.to(self.vector.device)
        return self

    def extra_repr(self) -> str:
        size, length = self.vector.shape
        return (
            f'size={size}, length={length}, momentum={self.momentum}, '
            f'score_range={self.score_range}, mode={self.mode!r}'
        )

    @property
    def seen(self) -> Tensor:
        """(size,) bool, True for the rows that a batch has set."""
        return self.num_updates > 0

    @torch.no_grad()
    def update(self, pos: Tensor, mask: Tensor, rows: Tensor | None = None, group=None) -> Tensor:
        """Take in the positives of a batch and return v for its lists.

        Args:
            pos: (L, P) scores of the positives of L lists.
            mask: (L, P) bool, False for padding.
            rows: (L,) int64 row of each list, repeated or not: the class of a query. None: list i
                is row i or, with ``size`` 1, all lists share the row.
            group: Process group whose ranks hold different positives; None if ``pos`` is the whole
                batch. With ``rows`` the ranks hold different lists, without them parts of the same
                lists.

        Returns:
            (L, length) float32 vectors to use with this batch. Where nothing is updated
            (evaluation, a recomputed forward), a row that was
            never seen returns the phi of the list itself.

        Raises:
            ValueError: If the lists do not fit the rows. On a GPU a row index out of range is a
                device-side assertion instead, which does
                not make the host wait.
        """
        size, length = self.vector.shape
        if rows is None:
            if size not in (1, pos.size(0)):
                raise ValueError(
                    f'the state holds {size} vectors but the scores have {pos.size(0)} lists; pass '
                    f'the row of each list or set num_classes={pos.size(0)}'
                )
        else:
            check_rows('rows', rows, pos.size(0), size)
        if group is not None and rows is None:
            pos, mask = all_gather_lists(pos, mask, group)
        phi = interpolate_scores(pos, length, *self.score_range, mask)
        usable = mask.any(1) & fits_float32(phi).all(1)
        index = self._row_index(rows, pos)
        if self.training and not inside_backward():
            if group is not None and rows is not None:
                self._step(*_gather_lists_of_ranks(phi, usable, index, group))
            else:
                self._step(phi, usable, index)
        if self.mode == 'off':
            return phi.float()
        seen = self.seen[index].unsqueeze(1)
        return torch.where(seen, self.vector[index], phi.float())

    def _row_index(self, rows: Tensor | None, pos: Tensor) -> Tensor:
        if rows is not None:
            return rows.long()
        if self.vector.size(0) == 1:
            return torch.zeros(pos.size(0), dtype=torch.long, device=pos.device)
        return torch.arange(pos.size(0), device=pos.device)

    def _step(self, phi: Tensor, usable: Tensor, index: Tensor) -> None:
        """One step of every row that a usable list names."""
        if index.numel() == 0:
            return
        same = (index[:, None] == index) & usable
        count = same.sum(1, keepdim=True)
        phi = torch.where(usable[:, None], phi, 0)
        merged = (same.double() @ phi) / count.clamp(min=1)
        # Lists of one row all write what the first of them computed, so the order of the writes
        # cannot show.
        first = (index[:, None] == index).byte().argmax(1)
        old = self.vector[index].double()
        lam = 1.0 if self.mode == 'off' else self.momentum
        # An infinite row of an old checkpoint starts afresh.
        seen = self.seen[index].unsqueeze(1) & old.isfinite()
        old = torch.where(old.isfinite(), old, 0)
        if self.mode != 'off':
            bounded = within_reach(merged, old, seen, self.score_range, self.REACH)
            self._warning.note((bounded != merged) & (count > 0))
            merged = bounded
        beta = torch.where(seen, lam, 1.0)
        new = torch.where(count > 0, old + beta * (merged - old), old)
        self.vector[index] = new.to(self.vector.dtype)[first]
        self.num_updates[index] = self.num_updates[index] + (count[:, 0] > 0)


def _gather_lists_of_ranks(
    phi: Tensor, usable: Tensor, index: Tensor, group
) -> tuple[Tensor, Tensor, Tensor]:
    """Join lists that differ by rank; ranks may have unlike numbers."""
    columns = torch.cat([phi, index.double().unsqueeze(1)], dim=1).t()
    mask = usable.expand_as(columns)
    columns, mask = all_gather_lists(columns, mask, group)
    return columns[:-1].t(), mask[0], columns[-1].long()
