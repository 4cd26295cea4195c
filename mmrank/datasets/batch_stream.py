"""Base of the samplers: a stream of whole batches, dealt out to the ranks."""

import sys
from collections.abc import Iterator

import numpy as np
from mmengine.dist import get_dist_info, sync_random_seed
from torch.utils.data import DataLoader, Sampler

from mmrank.errors import UserError
from mmrank.settings import CheckedSettings
from mmrank.training_set import DrawnBatch


class BatchStream(CheckedSettings, Sampler):
    """A stream of batches, each of which a subclass draws by its number.

    Batch number t depends on the seed and t alone, so a training resumes anywhere without drawing
    earlier batches, and the batches are the same for every number of ranks. Epoch e has the batches
    ``e * num_batches`` to ``(e + 1) * num_batches - 1``. Global random state is left alone.

    Subclasses define :meth:`rank_batch` or :meth:`global_batch`. They draw uniform numbers and sort
    them: the bits behind these stay the same in all versions of NumPy.

    Args:
        batch_size: Items in a batch, over all ranks. The ``batch_size`` of the data loader is
            ``share``, the indices that a rank yields for a batch: ``batch_size / W`` of W ranks,
            unless the subclass says otherwise.
        epoch_items: Items that an epoch shows: it has the batches that they fill, at least one.
        seed: Seed of the stream, the same on all ranks. None: drawn by mmengine on the first rank.
        infinite: Iterate endlessly, as ``IterBasedTrainLoop`` requires.
        unit: Items that stay together: W times as many must divide ``batch_size``.
    """

    def __init__(
        self, batch_size: int, epoch_items: int, seed: int | None, infinite: bool, unit: int = 1
    ) -> None:
        self.rank, self.world_size = get_dist_info()
        self.batch_size = batch_size
        least = unit * self.world_size
        if batch_size < 1 or batch_size % least:
            raise UserError(
                f'batch_size={batch_size} counts over all ranks. Fix: a positive multiple '
                f'of {least}, for {self.world_size} ranks'
                + (f' with num_per_class={unit}' if unit > 1 else '')
            )
        self.num_batches = max(1, epoch_items // batch_size)
        self.part = self.share = batch_size // self.world_size
        self.seed = sync_random_seed() if seed is None else seed
        self.infinite = infinite
        self.epoch = 0
        self._skipped = 0

    def check_enough(self, available: int, what: str) -> None:
        """Refuse a batch that is larger than what it is drawn from without replacement."""
        if self.batch_size > available:
            raise UserError(
                f'batch_size={self.batch_size}, but there are only {available} {what}. Fix: a '
                'smaller batch_size'
            )

    def global_batch(self, number: int) -> np.ndarray:
        """All indices of a batch of the stream, the same on every rank."""
        raise NotImplementedError

    def rank_batch(self, number: int) -> np.ndarray:
        """The (share,) indices of this rank: every W-th of the batch."""
        return self.global_batch(number)[self.rank :: self.world_size]

    def own_part(self, items: np.ndarray) -> np.ndarray:
        """The contiguous part of this rank of a batch's (batch_size, ...) items."""
        begin = self.rank * self.part
        return items[begin : begin + self.part]

    def generator(self, *numbers: int) -> np.random.Generator:
        """Random numbers that belong to the seed and some numbers."""
        return np.random.Generator(np.random.PCG64([self.seed, *numbers]))

    def drawn_batch(self) -> DrawnBatch:
        """The size of a batch, to compare the data loader's with."""
        return DrawnBatch(type(self).__name__, self.share, get_dist_info()[1])

    def __iter__(self) -> Iterator[int]:
        _refuse_second_dealer()
        # Heads compare it with what the data loader has put together.
        self.drawn_batch().note()
        length = len(self)
        if self.infinite or not self.epoch:
            position = self._skipped
        else:
            position = (self._skipped // length + self.epoch) * length
        end = None if self.infinite else (position // length + 1) * length
        # In a loop without set_epoch the next iteration is the next epoch, or goes on.
        self.epoch += 1
        while end is None or position < end:
            number, offset = divmod(position, self.share)
            position += self.share - offset
            if self.infinite:
                self._skipped = position
            yield from self.rank_batch(number)[offset:].tolist()

    def __len__(self) -> int:
        """Indices of this rank in one epoch."""
        return self.num_batches * self.share

    def set_epoch(self, epoch: int) -> None:
        """Choose the next epoch, from 0, counted from where ``skip`` led; if infinite, none."""
        self.epoch = epoch

    def skip(self, num_samples: int) -> None:
        """Continue after the first ``num_samples`` indices of this rank.

        The contract of mmengine's ``InfiniteSampler.skip``: counted from the start of the stream,
        and called before the iteration.
        """
        self._skipped = num_samples


def _refuse_second_dealer() -> None:
    """Refuse a sampler around this one that deals its indices out to processes once more.

    Lightning and accelerate wrap a sampler unasked, and nothing but the call tells it.
    """
    frame = sys._getframe(2)
    for _ in range(3):
        dealer = None if frame is None else frame.f_locals.get('self')
        shares = getattr(dealer, 'num_replicas', getattr(dealer, 'num_processes', 1))
        if isinstance(dealer, Sampler) and shares > 1:
            raise UserError(
                f'{type(dealer).__name__} deals the batches out to {shares} processes once more. '
                'Fix: Trainer(use_distributed_sampler=False) of Lightning; with accelerate leave '
                'the data loader out of prepare()'
            )
        frame = frame and frame.f_back


def check_loader(loader: DataLoader) -> None:
    """Refuse a data loader whose batch size is not its :class:`BatchStream`'s."""
    sampler = getattr(loader, 'sampler', None)
    if isinstance(sampler, BatchStream) and loader.batch_size is not None:
        sampler.drawn_batch().check(loader.batch_size)
