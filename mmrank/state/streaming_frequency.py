"""How often entities come up in batches, estimated while they do."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.gathering import all_gather_rows

from .base import SavedState, check_count

# Multiples of an id modulo a prime: different for each id. The factors are large, so that small ids
# wrap around: else ids that share a bucket of one array would share one of each.
_PRIME = 2**31 - 1
_FACTORS = (1, 1103515245, 1812433253, 1597334677, 2147001325, 1583458089)


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
        if not 1 <= num_hashes <= len(_FACTORS):
            raise ValueError(f'num_hashes must be 1 to {len(_FACTORS)}, got {num_hashes!r}')
        if not 0 < alpha < 1:
            raise ValueError(f'alpha must be in (0, 1), got {alpha!r}')
        self.alpha = float(alpha)
        shape = num_hashes, num_buckets
        self.register_buffer('last_step', torch.zeros(shape).long())
        self.register_buffer('interval', torch.zeros(shape))
        self.register_buffer('num_updates', torch.zeros((), dtype=torch.long))

    def buckets(self, ids: Tensor) -> Tensor:
        """(num_hashes, n) bucket of each of (n,) entities >= 0."""
        factors = torch.tensor(_FACTORS[: len(self.interval)], device=ids.device)
        mixed = (ids.long() % _PRIME) * factors[:, None] % _PRIME
        return mixed % self.interval.size(1)

    @torch.no_grad()
    def update(self, ids: Tensor, counts: Sequence[int] | None = None, group=None) -> None:
        """Take in a batch of (n,) entities >= 0 of this rank; with a ``group`` n of each rank."""
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
