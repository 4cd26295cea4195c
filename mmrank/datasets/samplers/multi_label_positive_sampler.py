"""Batches with positives of every class of a multi-label set."""

from collections.abc import Sequence, Sized
from functools import partial

import numpy as np
from mmengine.dist import get_world_size

from mmrank.datasets.samplers.batch_stream import BatchStream, rank_and_share
from mmrank.datasets.samplers.label_pairs import label_pairs
from mmrank.datasets.samplers.shuffled_cycle import ShuffledCycle
from mmrank.registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class MultiLabelPositiveSampler(BatchStream):
    """Batches with at least n+ positives of each class.

    The rarest class is served first. An image that was taken for one class counts for all that it
    has, so a common class may get more than its share when it occurs together with rarer ones. What
    is left of the batch is filled with images that have no class, in shuffled rounds; where there
    are too few of those, with any others. No image comes twice in a batch.

    ``batch_size`` counts the images of all ranks; rank r takes every W-th image. The ``batch_size``
    of the data loader is per rank. See
    :class:`~mmrank.datasets.samplers.batch_stream.BatchStream` for epochs,
    the seed and resuming.

    Args:
        dataset: Items have ``gt_label`` or ``gt_score``, see
            :func:`~mmrank.datasets.samplers.label_pairs.label_pairs`.
        batch_size: Images in a batch, over all ranks.
        num_positives: n+ of each class, over all ranks; or one number for
            each class.
        seed: Seed of the stream, the same on all ranks. None: drawn by mmengine on the first rank.
        num_batches: Batches in an epoch. None: as many as all images fill,
            the same for every n+.
        infinite: Iterate endlessly, as ``IterBasedTrainLoop`` requires.

    Raises:
        TypeError: If the labels are unknown.
        ValueError: If the numbers do not fit the batch or the data set.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_positives: int | Sequence[int] = 1,
        seed: int | None = None,
        num_batches: int | None = None,
        infinite: bool = False,
    ) -> None:
        self.rank, share = rank_and_share(batch_size, 'batch_size')
        self.world_size = get_world_size()
        self.batch_size = batch_size
        size = len(dataset)
        if size < batch_size:
            raise ValueError(f'batch_size={batch_size}, but the data set has only {size} images')
        if num_batches is None:
            num_batches = max(1, size // batch_size)
        super().__init__(num_batches, share, seed=seed, infinite=infinite)

        items, classes = label_pairs(dataset)
        names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
        names = names or range(int(classes.max(initial=-1)) + 1)
        self._has = np.zeros((size, len(names)), dtype=bool)
        self._has[items, classes] = True
        counts = self._has.sum(0)
        self.num_positives = _numbers(num_positives, names, counts, batch_size)
        # The rarest first; equally rare ones in their order.
        self._classes = np.argsort(counts, kind='stable')
        self._members = [np.flatnonzero(column) for column in self._has.T]
        self._none = np.flatnonzero(~self._has.any(1))
        # So many are left at least, whatever classes come together.
        left = batch_size - int(self.num_positives.sum())
        self._fill = ShuffledCycle(
            self._none, min(len(self._none), left), partial(self.generator, 0)
        )

    def global_batch(self, number: int) -> np.ndarray:
        """Draw one batch of the stream.

        Args:
            number: Which, from 0.

        Returns:
            (batch_size,) indices, the same on every rank.
        """
        rng = self.generator(1, number)
        taken = np.zeros(len(self._has), dtype=bool)
        found = np.zeros(len(self._members), dtype=np.int64)
        batch: list[np.ndarray] = []

        def take(images: np.ndarray) -> None:
            taken[images] = True
            found[:] += self._has[images].sum(0)
            batch.append(images)

        for label in self._classes:
            wanted = self.num_positives[label] - found[label]
            if wanted > 0:
                members = self._members[label]
                take(_some(members[~taken[members]], wanted, rng))
        take(self._fill.take(number))
        for others in (self._none, np.arange(len(taken))):
            left = self.batch_size - sum(map(len, batch))
            if left:
                take(_some(others[~taken[others]], left, rng))
        return np.concatenate(batch)

    def rank_batch(self, number: int) -> np.ndarray:
        """Every W-th image, so that each rank has its share of each class."""
        return self.global_batch(number)[self.rank :: self.world_size]


def _some(images: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Some images without replacement, from uniform numbers and a sort."""
    return images[np.argsort(rng.random(len(images)), kind='stable')[:count]]


def _numbers(
    num_positives: int | Sequence[int], names: Sequence, counts: np.ndarray, batch_size: int
) -> np.ndarray:
    if isinstance(num_positives, int):
        num_positives = [num_positives] * len(names)
    numbers = np.array(num_positives, dtype=np.int64)
    if numbers.shape != (len(names),) or (numbers < 0).any():
        raise ValueError(
            f'num_positives must be one number or one for each of the '
            f'{len(names)} classes, at least 0, got {num_positives}'
        )
    short = np.flatnonzero(numbers > counts)
    if len(short):
        label = short[0]
        raise ValueError(
            f'a batch takes {numbers[label]} positives of {names[label]}, but '
            f'the data set has only {counts[label]}. Fix: set a smaller '
            'num_positives, optionally one number for each class'
        )
    if not 0 < numbers.sum() <= batch_size:
        raise ValueError(
            f'num_positives={num_positives} are {numbers.sum()} images unless '
            f'an image has several classes, but batch_size={batch_size}. Fix: '
            'set a larger batch_size or fewer positives, at least one'
        )
    return numbers
