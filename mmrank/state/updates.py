"""When state is updated, which rows, and how far a batch may move it.

A batch may hold a score of 1e6, by a broken image or an overflow that ended just short of infinity.
An EMA of weight 0.01 would need a thousand batches to forget it, so what a batch measured is
clipped to what scores can explain.
"""

import warnings

import torch
from torch import Tensor

_LARGEST = torch.finfo(torch.float32).max


def inside_backward() -> bool:
    """Whether autograd is running backward in this thread.

    A forward that runs now is a recomputation by activation checkpointing:
    its batch has been counted already.
    """
    return torch._C._current_graph_task_id() != -1


class SampleGroups:
    """Sums over the rows of each sample, broadcast to all of its rows.

    In float64, and on the CPU in one fixed order: the result does not depend on the order of the
    rows. The host does not wait for the device.

    Args:
        ids: (n,) integer samples, repeated or not.
    """

    def __init__(self, ids: Tensor) -> None:
        ids, order = ids.sort()
        differs = ids[1:] != ids[:-1]
        # The host may look only where it need not wait.
        self._distinct = ids.device.type == 'cpu' and bool(differs.all())
        if not self._distinct:
            segment = torch.zeros_like(ids)
            segment[1:] = differs.cumsum(0)
            self._segment = torch.empty_like(segment).scatter_(0, order, segment)

    def sum(self, values: Tensor) -> Tensor:
        """(n,) float64 sum over the sample of each row, of (n,) values."""
        values = values.double()
        if self._distinct:
            # What the sum of one value and 0 is: -0 becomes 0.
            return values + 0.0
        order = values.argsort()
        order = order[self._segment[order].argsort(stable=True)]
        totals = torch.zeros_like(values)
        totals.index_add_(0, self._segment[order], values[order])
        return totals[self._segment]

    def mean(self, values: Tensor, usable: Tensor) -> Tensor:
        """Mean over the usable rows of a sample; 0 where there is none.

        Args:
            values: (n,) floats.
            usable: (n,) bool.

        Returns:
            (n,) float64.
        """
        total = self.sum(torch.where(usable, values, 0))
        if self._distinct:
            return total
        return total / self.sum(usable).clamp(min=1)

    def log_mean_exp(self, values: Tensor, usable: Tensor) -> Tensor:
        """Log of the mean of exp; -inf where no row of a sample is usable.

        Args:
            values: (n,) floats.
            usable: (n,) bool.

        Returns:
            (n,) float64.
        """
        values = torch.where(usable, values.double(), -torch.inf)
        if self._distinct:
            return values + 0.0
        top = torch.full_like(values, -torch.inf)
        top.scatter_reduce_(0, self._segment, values, 'amax')
        top = top[self._segment]
        shift = torch.where(top.isfinite(), top, 0)
        return shift + self.mean((values - shift).exp(), usable).log()


def check_rows(name: str, rows: Tensor, lists: int, size: int) -> None:
    """Refuse indices that do not fit the state.

    Args:
        name: What the caller calls them.
        rows: What should be (lists,) integers in ``[0, size)``.
        lists: Number of lists.
        size: Number of rows of the state.

    Raises:
        TypeError: If they are not integers.
        ValueError: If there are more or fewer than ``lists``, or one is out
            of range; on a GPU the latter is a device-side assertion.
    """
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise TypeError(f'{name} must be integers, got {rows.dtype}; call {name}.long()')
    if rows.shape != (lists,):
        raise ValueError(
            f'{name} must be ({lists},), one for each list, got shape {tuple(rows.shape)}'
        )
    if rows.numel() == 0:
        return
    fits = ((rows >= 0) & (rows < size)).all()
    if rows.device.type != 'cpu':
        torch._assert_async(fits)
    elif not fits:
        raise ValueError(
            f'{name} holds indices from {int(rows.min())} to {int(rows.max())}, but there are '
            f'{size} classes; set num_classes to the number of classes of the training set'
        )


def fits_float32(values: Tensor) -> Tensor:
    """Whether values stay finite in a float32 buffer, as bool."""
    return values.abs() <= _LARGEST


def within_reach(
    values: Tensor,
    mean: Tensor,
    seen: Tensor,
    score_range: tuple[float, float],
    widths: float = 1.0,
) -> Tensor:
    """Clip what a batch measured to what a declared score range explains.

    Two scores of the range differ by at most its width. The size of the mean is added, so that
    averages of scores far outside of the range move and return as ever.

    Args:
        values: What the batch measured, float64.
        mean: The moving average before the batch.
        seen: Bool, False where it is not set yet: the values are then
            compared with the range itself.
        score_range: Declared (low, high).
        widths: How many widths of the range are allowed.

    Returns:
        Values, those within reach bit for bit.
    """
    low, high = score_range
    reach = widths * (high - low)
    free = torch.where(seen, reach + mean.abs(), reach)
    least = torch.where(seen, mean, low) - free
    most = torch.where(seen, mean, high) + free
    return torch.maximum(torch.minimum(values, most), least)


class OutlierWarning:
    """Warns once that values were clipped; a GPU is not waited for.

    There the warning comes with one of the next batches.

    Args:
        what: What was clipped, for the message.
    """

    def __init__(self, what: str) -> None:
        self.what, self.given = what, False
        self._found = self._flag = self._arrived = None

    def __reduce__(self):
        # A copy of a module warns for itself; events cannot be copied.
        return OutlierWarning, (self.what,)

    def note(self, clipped: Tensor) -> None:
        """Take in which values of a batch were clipped.

        Args:
            clipped: Bool tensor of any shape.
        """
        if self.given:
            return
        if clipped.device.type == 'cpu':
            if clipped.any():
                self._warn()
        elif clipped.device.type == 'cuda':
            self._note_later(clipped.any())

    def _note_later(self, found: Tensor) -> None:
        if torch.cuda.is_current_stream_capturing():
            return
        self._found = found if self._found is None else self._found | found
        if self._arrived is not None and not self._arrived.query():
            return
        if self._flag is None:
            self._flag = torch.zeros((), dtype=torch.bool, pin_memory=True)
        elif self._flag:
            self._warn()
            return
        self._flag.copy_(self._found, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def _warn(self) -> None:
        self.given = True
        self._found = self._flag = self._arrived = None
        warnings.warn(
            f'{self.what} of a batch lies far outside of what score_range explains; it was '
            'clipped before it was averaged. Look for a broken sample or a diverging model, or '
            'declare the range that the scores have. This is said once',
            stacklevel=2,
        )
