"""How many pairs each entity has, and checks of pairs."""

import torch
from torch import Tensor

from mmrank.autograd import violated
from mmrank.errors import UserError
from mmrank.tensors import check_index

from .base import SavedState


class PairCounts(SavedState):
    """Counts ``|O_i,:|`` and ``|O_:,j|`` of the training pairs O; not in a checkpoint.

    ``num_positives`` is ``|O|``, 0 until the pairs are set.
    """

    row_counts: Tensor  # (m,) float64, empty until then
    col_counts: Tensor  # (n,) float64, likewise

    def __init__(self) -> None:
        super().__init__()
        empty = torch.empty(0, dtype=torch.float64, device='cpu')
        self.set_constant('row_counts', empty)
        self.set_constant('col_counts', empty)
        self.num_positives = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n); (0, 0) until the counts are set."""
        return len(self.row_counts), len(self.col_counts)

    def set_pairs(self, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
        """Count the (|O|,) training pairs of an (m, n) ``shape``.

        ValueError or TypeError, and nothing has changed, as in :func:`check_pairs`, or if a row or
        column has no pair.
        """
        rows = torch.as_tensor(rows, device='cpu')
        cols = torch.as_tensor(cols, device='cpu')
        check_pairs(rows, cols, shape, 'the training pairs')
        self.set_counts(
            torch.bincount(rows.long(), minlength=shape[0]),
            torch.bincount(cols.long(), minlength=shape[1]),
        )

    def set_counts(self, row_counts: Tensor, col_counts: Tensor) -> None:
        """Take (m,) and (n,) counts >= 1 that are known already, of one sum; else ValueError."""
        row_counts = torch.as_tensor(row_counts, device='cpu').double()
        col_counts = torch.as_tensor(col_counts, device='cpu').double()
        for name, counts in (('row_counts', row_counts), ('col_counts', col_counts)):
            if not (counts >= 1).all():
                index = int((~(counts >= 1)).nonzero()[0, 0])
                raise UserError(
                    f'{name}[{index}]={counts[index].item()}: every row and column requires at '
                    'least one positive pair, otherwise it is never sampled. Fix: remove it from '
                    'the matrix and renumber the others'
                )
        total = int(row_counts.sum())
        if total != int(col_counts.sum()) or not total:
            raise ValueError(
                f'row_counts sum up to {total} and col_counts to {int(col_counts.sum())}, but both '
                'count the same pairs, at least one; count both over the training pairs'
            )
        self.set_constant('row_counts', row_counts)
        self.set_constant('col_counts', col_counts)
        self.num_positives = total

    def require(self) -> None:
        """Raise RuntimeError if the counts are not set."""
        if not self.num_positives:
            raise RuntimeError(
                'the training pairs are not set. Fix: loss.set_pairs(rows, cols, shape) of all '
                'pairs before training, then loss(left, right, rows, cols); with mmengine '
                'custom_hooks=[dict(type="mmrank.PairCountsHook")]'
            )


def check_pairs(
    rows: Tensor, cols: Tensor, shape: tuple[int, int], what: str = 'the batch', once: bool = True
) -> None:
    """Refuse pairs that no sample without replacement can hold; ``what`` is for messages.

    Unless ``once`` is False a pair may not come up again.
    On a GPU a wrong value is a device-side assertion, so that the host need not wait.
    """
    if len(shape) != 2 or min(shape) < 1:
        raise ValueError(
            'shape must be (m, n), the numbers of left and right entities, '
            f'each at least 1, got {tuple(shape)}'
        )
    if rows.dim() != 1 or rows.shape != cols.shape:
        raise ValueError(
            f'rows and cols of {what} must be of one shape (B,), got '
            f'{tuple(rows.shape)} and {tuple(cols.shape)}'
        )
    check_entities('rows', rows, shape[0])
    check_entities('cols', cols, shape[1])
    if not once:
        return
    keys = (rows.long() * shape[1] + cols.long()).sort().values
    if violated((keys[1:] != keys[:-1]).all(), f'a pair occurs more than once in {what}'):
        key = int(keys[1:][keys[1:] == keys[:-1]][0])
        row, col = divmod(key, shape[1])
        raise UserError(
            f'the pair (row {row}, column {col}) occurs more than once in {what}; pairs must be '
            'distinct, and a batch sampled without replacement. Fix: remove duplicates from the '
            'training pairs, and sample with mmrank.InBatchPairSampler'
        )


def check_entities(name: str, indices: Tensor, size: int) -> None:
    """Check indices of one of ``size`` entities; see :func:`check_index`."""
    check_index(name, indices, size, 'make the entities of the data and the counts agree')


def check_columns(cols: Tensor, col_counts: Tensor, what: str) -> None:
    """Refuse right entities that occur more often than they have positives.

    This is all that can be checked for a sample whose left entities are unknown; on a GPU it is a
    device-side assertion.
    """
    times = torch.zeros_like(col_counts)
    times.index_add_(0, cols.long(), torch.ones_like(times[:1]).expand(len(cols)))
    if violated(
        (times <= col_counts).all(), f'a column occurs in {what} more often than it has pairs'
    ):
        col = int((times > col_counts).nonzero()[0, 0])
        raise UserError(
            f'column {col} occurs {int(times[col])} times in {what}, but has '
            f'{col_counts[col].item():g} positive pairs: it was sampled with replacement, or each '
            'rank sampled on its own. Fix: sample with mmrank.InBatchPairSampler'
        )
