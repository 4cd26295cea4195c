"""What samplers of whole batches share: epochs, ranks, resuming."""

from collections.abc import Iterator

import numpy as np
from mmengine.dist import get_dist_info, sync_random_seed
from torch.utils.data import DataLoader, Sampler

from mmrank.training_set import DrawnBatch


class BatchStream(Sampler):
    """A stream of batches, each of which a subclass draws by its number.

    Batch number t depends on the seed and t alone, so a training resumes anywhere without drawing
    earlier batches, and the batches are the same for every number of ranks. Epoch e has the batches
    ``e * num_batches`` to ``(e + 1) * num_batches - 1``. Global random state is left alone.

    Subclasses define :meth:`rank_batch` and may use :meth:`generator`.

    Args:
        num_batches: Batches in an epoch.
        share: Indices that a rank yields for a batch, always as many: the ``batch_size`` of the
            data loader.
        seed: Seed, the same on all ranks. None: drawn by mmengine on the
            first rank.
        infinite: Iterate endlessly, as ``IterBasedTrainLoop`` requires.

    Raises:
        ValueError: If ``num_batches`` is not positive.
    """

    def __init__(self, num_batches: int, share: int, seed: int | None, infinite: bool) -> None:
        if num_batches < 1:
            raise ValueError(f'num_batches must be at least 1, got {num_batches}')
        self.num_batches, self.share = num_batches, share
        self.seed = sync_random_seed() if seed is None else seed
        self.infinite = infinite
        self.epoch = 0
        self._skipped = 0

    def rank_batch(self, number: int) -> np.ndarray:
        """The (share,) indices of this rank in a batch of the stream."""
        raise NotImplementedError

    def generator(self, *numbers: int) -> np.random.Generator:
        """Random numbers that belong to the seed and some numbers."""
        return np.random.Generator(np.random.PCG64([self.seed, *numbers]))

    def drawn_batch(self) -> DrawnBatch:
        """The size of a batch, to compare the data loader's with."""
        return DrawnBatch(type(self).__name__, self.share, get_dist_info()[1])

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of this rank."""
        # Heads compare it with what the data loader has put together.
        self.drawn_batch().note()
        length = len(self)
        if self.infinite or not self.epoch:
            position = self._skipped
        else:
            position = (self._skipped // length + self.epoch) * length
        end = None if self.infinite else (position // length + 1) * length
        while end is None or position < end:
            number, offset = divmod(position, self.share)
            yield from self.rank_batch(number)[offset:].tolist()
            position += self.share - offset

    def __len__(self) -> int:
        """Indices of this rank in one epoch."""
        return self.num_batches * self.share

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from where ``skip`` led.

        Args:
            epoch: From 0; without meaning where the stream is infinite.
        """
        self.epoch = epoch

    def skip(self, num_samples: int) -> None:
        """Continue after the first ``num_samples`` indices of this rank.

        The contract of mmengine's ``InfiniteSampler.skip``: counted from the start of the stream,
        and called before the iteration.

        Args:
            num_samples: Indices that this rank has consumed.

        Raises:
            ValueError: If it is negative.
        """
        if num_samples < 0:
            raise ValueError(f'num_samples must not be negative, got {num_samples}')
        self._skipped = num_samples


def check_loader(loader: DataLoader) -> None:
    """Refuse a data loader whose batches are not those of its sampler.

    Args:
        loader: Any; one whose sampler does not draw batches is passed over.

    Raises:
        UserError: If the loader and the sampler disagree on the batch size.
    """
    sampler = getattr(loader, 'sampler', None)
    if not isinstance(sampler, BatchStream):
        return
    if loader.batch_size is not None:
        sampler.drawn_batch().check(loader.batch_size)


def rank_and_share(batch_size: int, name: str) -> tuple[int, int]:
    """This rank and its share of a batch.

    Args:
        batch_size: Over all ranks.
        name: What the caller calls it.

    Raises:
        ValueError: If it is not a positive multiple of the number of ranks.
    """
    rank, world_size = get_dist_info()
    if batch_size < 1 or batch_size % world_size:
        raise ValueError(
            f'{name}={batch_size} counts over all ranks and must be a '
            f'positive multiple of their number, {world_size}'
        )
    return rank, batch_size // world_size


def check_sampling(dataset, expected: tuple[str, ...]):
    """The interactions of a data set that yields what a sampler means.

    Raises:
        TypeError: If the data set is no ``InteractionDataset``.
        ValueError: If its ``sampling`` is another.
    """
    sampling = getattr(dataset, 'sampling', None)
    if sampling is None:
        raise TypeError(
            f'{type(dataset).__name__} has no positive pairs; use '
            "type='mmrank.InteractionDataset', without a wrapper"
        )
    if sampling not in expected:
        raise ValueError(
            f'the data set has sampling={sampling!r}, but its sampler is for '
            f'{" or ".join(map(repr, expected))}; set sampling of the data set so'
        )
    return dataset.interactions
