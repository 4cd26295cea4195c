"""When state is updated, and which rows: checks and groups of indices."""

import torch
from torch import Tensor


def inside_backward() -> bool:
    """Whether autograd is running backward in this thread.

    A forward that runs now is a recomputation by activation checkpointing:
    its batch has been counted already.
    """
    return torch._C._current_graph_task_id() != -1


class SampleGroups:
    """Sums over the rows of each sample, broadcast to all of its rows.

    In float64, and on the CPU in one fixed order: the result does not depend
    on the order of the rows. The host does not wait for the device.

    Args:
        ids: (n,) integer samples, repeated or not.
    """

    def __init__(self, ids: Tensor) -> None:
        ids, order = ids.sort()
        starts = torch.ones_like(ids)
        starts[1:] = ids[1:] != ids[:-1]
        segment = starts.cumsum(0) - 1
        self._segment = torch.empty_like(segment).scatter_(0, order, segment)

    def sum(self, values: Tensor) -> Tensor:
        """(n,) float64 sum over the sample of each row, of (n,) values."""
        values = values.double()
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
        raise TypeError(
            f'{name} must be integers, got {rows.dtype}; call {name}.long()'
        )
    if rows.shape != (lists,):
        raise ValueError(
            f'{name} must be ({lists},), one for each list, got shape '
            f'{tuple(rows.shape)}'
        )
    if rows.numel() == 0:
        return
    fits = ((rows >= 0) & (rows < size)).all()
    if rows.device.type != 'cpu':
        torch._assert_async(fits)
    elif not fits:
        raise ValueError(
            f'{name} holds indices from {int(rows.min())} to '
            f'{int(rows.max())}, but there are {size} classes; set '
            'num_classes to the number of classes of the training set'
        )
