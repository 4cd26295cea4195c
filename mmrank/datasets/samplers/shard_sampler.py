"""Batches of samples that lie in shards, read one after the other."""

import numpy as np

from mmrank.checks import check_at_least
from mmrank.datasets.samplers.batch_stream import BatchStream
from mmrank.errors import UserError
from mmrank.registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class ShardSampler(BatchStream):
    """Shuffles samples so that each shard is read from front to back.

    Samples drawn from all shards at random, as by mmengine's samplers, need a disk with fast access
    anywhere. Here an epoch shuffles the shards and puts their samples in a row, from a random one
    on. The row is cut into as many lanes as there are data loading workers in all processes, and
    each lane into ``readers`` stretches, which are read side by side: ``buffer`` samples at a time,
    shuffled. That is WebDataset's shuffle buffer, but that batch number t depends on the seed and t
    alone, as in every :class:`~mmrank.datasets.samplers.batch_stream.BatchStream`: no sample comes
    twice in an epoch, whatever reads it, and a training resumes anywhere, bit for bit, without
    reading what it has seen.

    An epoch has the batches that all samples fill, rounded down to a multiple of ``workers``; what
    is left over is other samples in each.

    Args:
        dataset: With ``shard_sizes``: ``mmrank.ShardedCaptions`` or ``mmrank.StreamedCaptions``.
        batch_size: See :class:`BatchStream`.
        buffer: Samples that a lane shuffles at a time.
        readers: Shards that a lane reads side by side.
        workers: ``num_workers`` of the data loader, where it is not 0.
        parts: Parts of a batch, each from a lane of its own; the ranks share them. None: one a
            rank. For a training that continues on another number of ranks name a number that both
            divide: the batches stay the same.
        seed, infinite: See :class:`BatchStream`.

    Raises:
        TypeError: If the data set has no shards.
        ValueError: If a setting makes no sense, or there are too few samples for a batch a worker.

    Example:
        >>> train_dataloader = dict(
        ...     batch_size=256,  # of this rank
        ...     num_workers=4,
        ...     sampler=dict(type='mmrank.ShardSampler', batch_size=1024,
        ...                  workers=4, infinite=True))
    """

    def __init__(
        self,
        dataset,
        batch_size: int,
        buffer: int = 4096,
        readers: int = 8,
        workers: int = 1,
        parts: int | None = None,
        seed: int | None = None,
        infinite: bool = False,
    ) -> None:
        sizes = getattr(dataset, 'shard_sizes', None)
        if sizes is None:
            raise TypeError(
                f"{type(dataset).__name__} has no shards; use type='mmrank.ShardedCaptions' or "
                "'mmrank.StreamedCaptions', without a wrapper, or another sampler"
            )
        check_at_least(1, buffer=buffer, readers=readers, workers=workers)
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._total = int(self._sizes.sum())
        super().__init__(batch_size, self._total, seed, infinite)
        parts = self.world_size if parts is None else parts
        if parts < 1 or parts % self.world_size or batch_size % parts:
            raise ValueError(
                f'parts={parts} must be a multiple of the number of ranks, '
                f'{self.world_size}, and divide batch_size={batch_size}'
            )
        self.buffer, self.readers, self.workers, self.parts = buffer, readers, workers, parts
        self.num_batches = num_batches = self._total // (batch_size * workers) * workers
        if not num_batches:
            raise UserError(
                f'{self._total} samples do not fill a batch of batch_size={batch_size} for each of '
                f'workers={workers}. Fix: a smaller batch_size, or fewer workers'
            )
        # Samples of a lane: an equal share of the epoch's batches.
        self._lane = num_batches // workers * (batch_size // parts)
        bounds = np.arange(readers + 1) * self._lane // readers
        windows = -(-self._lane // buffer)
        steps = np.arange(windows + 1)
        # (windows + 1, readers): where each window of a stretch begins.
        self._cuts = bounds[:-1] + np.outer(steps, np.diff(bounds)) // windows
        self._windows = (self._cuts - bounds[:-1]).sum(1)
        self._order: tuple = (None, None, None, 0)
        self._drawn: dict[int, tuple[tuple, np.ndarray]] = {}

    def rank_batch(self, number: int) -> np.ndarray:
        """The parts of this rank in a batch."""
        per_rank = self.parts * self.share // self.batch_size
        first = self.rank * per_rank
        epoch, batch = divmod(number, self.num_batches)
        turn, worker = divmod(batch, self.workers)
        size = self.batch_size // self.parts
        return np.concatenate(
            [
                self._take(epoch, part * self.workers + worker, turn, size)
                for part in range(first, first + per_rank)
            ]
        )

    def _take(self, epoch: int, lane: int, turn: int, size: int) -> np.ndarray:
        """Samples number ``turn * size`` and following of a lane."""
        place, end = turn * size, (turn + 1) * size
        taken = []
        while place < end:
            window = int(np.searchsorted(self._windows, place, 'right')) - 1
            begin, after = self._windows[window : window + 2]
            stop = min(end, int(after))
            shuffled = self._window(epoch, lane, window)
            taken.append(shuffled[place - begin : stop - begin])
            place = stop
        return np.concatenate(taken)

    def _window(self, epoch: int, lane: int, window: int) -> np.ndarray:
        key = (self.seed, epoch, window)  # a resume may set the seed
        if self._drawn.get(lane, (None,))[0] != key:
            begins, ends = self._cuts[window : window + 2]
            rows = np.concatenate([np.arange(a, b) for a, b in zip(begins, ends)])
            # Uniform numbers and a sort: the same in all versions of NumPy.
            keys = self.generator(epoch, 1, lane, window).random(len(rows))
            rows = rows[np.argsort(keys, kind='stable')]
            self._drawn[lane] = key, self._samples(epoch, lane, rows)
        return self._drawn[lane][1]

    def _samples(self, epoch: int, lane: int, rows: np.ndarray) -> np.ndarray:
        """Samples at places in a lane's part of the row of an epoch."""
        if self._order[0] != (self.seed, epoch):
            rng = self.generator(epoch, 0)
            shards = np.argsort(rng.random(len(self._sizes)), kind='stable')
            ends = np.cumsum(self._sizes[shards])
            first = int(rng.random() * self._total)
            self._order = (self.seed, epoch), shards, ends, first
        _, shards, ends, first = self._order
        rows = (rows + lane * self._lane + first) % self._total
        which = np.searchsorted(ends, rows, side='right')
        shard = shards[which]
        inside = rows - (ends[which] - self._sizes[shard])
        return self._starts[shard] + inside
