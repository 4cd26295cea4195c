"""How many pairs each entity has, counted before the training or estimated in it; their checks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.autograd import violated
from mmrank.checks import check_count, check_within
from mmrank.distributed import all_gather_rows
from mmrank.errors import UserError
from mmrank.tensors import check_index

from .base import SavedState

# Multiples of an id modulo a prime: different for each id. The factors are large, so that small ids
# wrap around: else ids that share a bucket of one array would share one of each.
_PRIME = 2**31 - 1
_FACTORS = (1, 1103515245, 1812433253, 1597334677, 2147001325, 1583458089)


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
        check_counts('row_counts', row_counts, row_counts.numel())
        check_counts('col_counts', col_counts, col_counts.numel())
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
                'the training pairs are not set: add '
                'custom_hooks=[dict(type="mmrank.PairCountsHook")], or call '
                'set_pairs(rows, cols, shape) of the loss before training'
            )


def check_pairs(
    rows: Tensor, cols: Tensor, shape: tuple[int, int], what: str = 'the batch'
) -> None:
    """Refuse pairs that no sample without replacement can hold; ``what`` is for messages.

    On a GPU a wrong value is a device-side assertion, so that the host need not wait; shapes and
    types are always checked here.
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


def check_counts(name: str, counts: Tensor, size: int) -> None:
    """Check that ``counts`` are (size,) numbers >= 1; on a GPU by a device-side assertion."""
    if counts.shape != (size,):
        raise ValueError(f'{name} must be ({size},) to fit shape=(m, n), got {tuple(counts.shape)}')
    if violated((counts >= 1).all(), f'{name} must be >= 1: pairs of each row and column'):
        index = int((~(counts >= 1)).nonzero()[0, 0])
        raise UserError(
            f'{name}[{index}]={counts[index].item()}: every row and column '
            'requires at least one positive pair, otherwise it is never '
            'sampled. Fix: remove it from the matrix and renumber the others'
        )


def check_columns(cols: Tensor, col_counts: Tensor, what: str) -> None:
    """Refuse right entities that occur more often than they have positives.

    This is all that can be checked for a sample whose left entities are unknown; on a GPU it is a
    device-side assertion.
    """
    found = torch.zeros_like(col_counts)
    found.index_add_(0, cols.long(), torch.ones_like(found[:1]).expand(len(cols)))
    if violated(
        (found <= col_counts).all(), f'a column occurs in {what} more often than it has pairs'
    ):
        col = int((found > col_counts).nonzero()[0, 0])
        raise UserError(
            f'column {col} occurs {int(found[col])} times in {what}, but has '
            f'{col_counts[col].item():g} positive pairs: it was sampled with replacement, or each '
            'rank sampled on its own. Fix: sample with mmrank.InBatchPairSampler'
        )


class StreamingFrequency(SavedState):
    """Share of the batches that an entity is in, from the steps in between.

    An entity falls into a bucket, which keeps the step A of its last batch and a moving average D
    of the steps between two, ``D <- (1 - alpha) D + alpha (t - A)``, ``A <- t``; the share is ``1 /
    D``. It follows a distribution that changes, and needs no list of the entities. Source: Yi et
    al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations, RecSys 2019,
    algorithms 2 and 3.

    The first batch of a bucket sets D to t, which on average is what D estimates; the paper starts
    from a guess, whose error fades. Entities that share a bucket look too frequent: with several
    hashes the largest D, of the least shared bucket, counts. With one hash and as many buckets as
    entities none is shared. A bucket takes one step a batch. The state is the same on all ranks and
    for any world size.

    Args:
        num_buckets: H, >= 1.
        num_hashes: Arrays of buckets, 1 to 6.
        alpha: Weight of the newest interval, in (0, 1).
    """

    shape_settings = 'num_buckets and num_hashes'
    last_step: Tensor  # (num_hashes, H) int64 buffer A; 0: never
    interval: Tensor  # (num_hashes, H) float32 buffer D, in steps; 0: never
    num_updates: Tensor  # () int64 buffer t

    def __init__(self, num_buckets: int, num_hashes: int = 1, alpha: float = 0.01) -> None:
        super().__init__()
        fix = '; as many as there are entities, or fewer and num_hashes=4'
        check_count('num_buckets', num_buckets, fix=fix)
        check_within(f'[1, {len(_FACTORS)}]', num_hashes=num_hashes)
        check_within('(0, 1)', alpha=alpha)
        self.alpha = float(alpha)
        self.add_state('last_step', (num_hashes, num_buckets), dtype=torch.long)
        self.add_state('interval', (num_hashes, num_buckets))
        self.add_state('num_updates', (), dtype=torch.long)

    def buckets(self, ids: Tensor) -> Tensor:
        """(num_hashes, n) bucket of each of (n,) entities >= 0."""
        factors = torch.tensor(_FACTORS[: len(self.interval)], device=ids.device)
        mixed = (ids.long() % _PRIME) * factors[:, None] % _PRIME
        return mixed % self.interval.size(1)

    def update(self, ids: Tensor, counts: Sequence[int] | None = None, group=None) -> None:
        """Take in a batch of (n,) entities >= 0 of this rank; with a ``group`` n of each rank."""
        if not self.moves:
            return
        if group is not None:
            ids = all_gather_rows(ids[:, None], list(counts), group)[:, 0]
        if not len(ids):
            return
        self.num_updates += 1
        for last, interval, own in zip(self.last_step, self.interval, self.buckets(ids)):
            # Entries of one bucket all write the same.
            before = interval[own]
            gap = (self.num_updates - last[own]).to(interval.dtype)
            mixed = torch.lerp(before, gap, self.alpha)
            interval[own] = torch.where(last[own] > 0, mixed, gap)
            last[own] = self.num_updates

    def log_share(self, ids: Tensor) -> Tensor:
        """(n,) float32 log of the share of batches that (n,) entities are in, <= 0.

        An entity that no batch has had yet counts as one whose first batch is the next one.
        """
        own = self.buckets(ids)
        interval = self.interval.gather(1, own)
        unseen = self.last_step.gather(1, own) == 0
        following = (self.num_updates + 1).to(interval.dtype)
        interval = torch.where(unseen, following, interval)
        return -interval.amax(0).clamp(min=1).log()
