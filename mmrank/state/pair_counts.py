"""How many positive pairs each left and each right entity has."""

import torch
from torch import Tensor, nn

from mmrank.state.pairs import check_counts, check_pairs


class PairCounts(nn.Module):
    """Counts ``|O_i,:|`` and ``|O_:,j|`` of the training pairs O.

    Attributes:
        row_counts: (m,) float64 buffer, not saved: it comes from the data
            set. Empty until the counts are set.
        col_counts: (n,) float64 buffer, likewise.
        num_positives: ``|O|``, 0 until then.
    """

    row_counts: Tensor
    col_counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ('row_counts', 'col_counts'):
            # Floats: mmengine's SyncBuffersHook cannot average integers.
            counts = torch.zeros(0, dtype=torch.float64)
            self.register_buffer(name, counts, persistent=False)
        self.num_positives = 0

    def _apply(self, fn, recurse=True):
        # model.half() would round counts above 2048.
        before = self.row_counts, self.col_counts
        super()._apply(fn, recurse)
        device = self.row_counts.device
        self.row_counts, self.col_counts = (x.to(device) for x in before)
        return self

    def extra_repr(self) -> str:
        return f'shape={self.shape}, num_positives={self.num_positives}'

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n); (0, 0) until the counts are set."""
        return len(self.row_counts), len(self.col_counts)

    def set_pairs(self, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
        """Count the training pairs.

        Args:
            rows: (|O|,) integers in ``[0, m)``.
            cols: (|O|,) integers in ``[0, n)``.
            shape: (m, n).

        Raises:
            TypeError: If they are not integers.
            ValueError: If an index is out of range, a pair occurs twice, or a row or column has no
                pair. Then nothing has changed.
        """
        rows, cols = torch.as_tensor(rows).cpu(), torch.as_tensor(cols).cpu()
        check_pairs(rows, cols, shape, 'the training pairs')
        self.set_counts(
            torch.bincount(rows.long(), minlength=shape[0]),
            torch.bincount(cols.long(), minlength=shape[1]),
        )

    def set_counts(self, row_counts: Tensor, col_counts: Tensor) -> None:
        """Take counts that are known already.

        Args:
            row_counts: (m,) integers >= 1.
            col_counts: (n,) integers >= 1 with the same sum.

        Raises:
            ValueError: If they are no counts of one set of pairs. Then
                nothing has changed.
        """
        device = self.row_counts.device
        counts = []
        for name, given in zip(('row_counts', 'col_counts'), (row_counts, col_counts)):
            given = torch.as_tensor(given).cpu().double()
            check_counts(name, given, given.numel())
            counts.append(given)
        sums = [int(x.sum()) for x in counts]
        if sums[0] != sums[1] or not sums[0]:
            raise ValueError(
                f'row_counts sum up to {sums[0]} and col_counts to {sums[1]}, but both count the '
                'same pairs, at least one; count both over the training pairs'
            )
        self.row_counts, self.col_counts = (x.to(device) for x in counts)
        self.num_positives = sums[0]

    def require(self) -> None:
        """Raise if the counts are missing.

        Raises:
            RuntimeError: If they are not set.
        """
        if not self.num_positives:
            raise RuntimeError(
                'the training pairs are not set: add '
                'custom_hooks=[dict(type="mmrank.PairCountsHook")], or call '
                'set_pairs(rows, cols, shape) of the loss before training'
            )
