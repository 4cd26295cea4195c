"""How far one batch may move a moving average.

A batch may hold a score of 1e6, by a broken image or an overflow that ended just short of infinity.
An EMA of weight 0.01 would need a thousand batches to forget it, so what a batch measured is
clipped to what scores can explain.
"""

import warnings

import torch
from torch import Tensor


def within_reach(
    values: Tensor,
    mean: Tensor,
    seen: Tensor,
    score_range: tuple[float, float],
    widths: float = 1.0,
) -> Tensor:
    """Clip what a batch measured to what a declared score range explains; within, bit for bit.

    Two scores of the range differ by at most its width; ``widths`` of them are allowed. The size of
    the ``mean`` before the batch is added, so that averages of scores far outside of the range move
    and return as ever. Where it is not ``seen`` the values are compared with the range itself.
    """
    low, high = score_range
    reach = widths * (high - low)
    free = torch.where(seen, reach + mean.abs(), reach)
    least = torch.where(seen, mean, low) - free
    most = torch.where(seen, mean, high) + free
    return torch.maximum(torch.minimum(values, most), least)


class OutlierWarning:
    """Warns once that values were clipped; on a GPU with one of the next batches, without waiting.

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
        """Take in which values of a batch were clipped, a bool tensor."""
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
