"""Batches with a fixed number of positives, for one class."""

from collections.abc import Sized
from functools import partial

import numpy as np
from mmengine.dist import get_world_size

from mmrank.datasets.samplers.batch_stream import BatchStream, rank_and_share
from mmrank.datasets.samplers.label_pairs import label_pairs
from mmrank.datasets.samplers.shuffled_cycle import ShuffledCycle
from mmrank.registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class PositiveRateSampler(BatchStream):
    """Batches of exactly n+ positives and ``batch_size`` - n+ negatives.

    In a long-tailed set a random batch has few positives, often none, and a ranking loss then
    learns little. Positives and negatives are each dealt
    out in shuffled rounds, so that within a round every image comes once.

    ``batch_size`` counts the images of all ranks, which take turns in the positives and then in the
    negatives: their numbers of positives differ by one at most. The ``batch_size`` of the data
    loader is per rank. See
    :class:`~mmrank.datasets.samplers.batch_stream.BatchStream` for epochs,
    the seed and resuming.

    Args:
        dataset: Binary, or with a class to rank against the rest: items have ``gt_label`` or
            ``gt_score``, see :func:`~mmrank.datasets.\
samplers.label_pairs.label_pairs`.
        batch_size: Images in a batch, over all ranks.
        num_positives: n+, over all ranks. Set it or ``positive_rate``.
        positive_rate: n+ as a share of the batch, rounded.
        positive_class: Index of the positive class. None: 1 of two classes,
            or the only one.
        seed: Seed of the stream, the same on all ranks. None: drawn by mmengine on the first rank.
        num_batches: Batches in an epoch. None: as many as all images fill,
            the same for every positive rate.
        infinite: Iterate endlessly, as ``IterBasedTrainLoop`` requires.

    Raises:
        TypeError: If the labels are unknown.
        ValueError: If a setting makes no sense, or there are too few
            positives or negatives for a batch.

    Example:
        >>> train_dataloader = dict(
        ...     batch_size=128,  # of this rank
        ...     sampler=dict(type='mmrank.PositiveRateSampler',
        ...                  batch_size=128, positive_rate=0.2))
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_positives: int | None = None,
        positive_rate: float | None = None,
        positive_class: int | None = None,
        seed: int | None = None,
        num_batches: int | None = None,
        infinite: bool = False,
    ) -> None:
        self.rank, share = rank_and_share(batch_size, 'batch_size')
        self.world_size = get_world_size()
        self.batch_size = batch_size
        self.num_positives = _number(batch_size, num_positives, positive_rate)
        if num_batches is None:
            num_batches = max(1, len(dataset) // batch_size)
        super().__init__(num_batches, share, seed=seed, infinite=infinite)

        items, classes = label_pairs(dataset)
        if positive_class is None:
            positive_class = _only_class(dataset, classes)
        is_positive = np.zeros(len(dataset), dtype=bool)
        is_positive[items[classes == positive_class]] = True
        self._sides = []
        for tag, (name, members, count) in enumerate(
            (
                ('positives', is_positive, self.num_positives),
                ('negatives', ~is_positive, batch_size - self.num_positives),
            )
        ):
            members = np.flatnonzero(members)
            if count > len(members):
                raise ValueError(
                    f'a batch takes {count} {name} of class {positive_class}, but the data set has '
                    f'only {len(members)}. Fix: a smaller batch_size, or '
                    + ('fewer' if tag == 0 else 'more')
                    + ' positives in it'
                )
            generator = partial(self.generator, tag)
            self._sides.append(ShuffledCycle(members, count, generator))

    def global_batch(self, number: int) -> np.ndarray:
        """Draw one batch of the stream.

        Args:
            number: Which, from 0.

        Returns:
            (batch_size,) indices, positives first, the same on every rank.
        """
        return np.concatenate([side.take(number) for side in self._sides])

    def rank_batch(self, number: int) -> np.ndarray:
        """Every W-th image, so that each rank has its share of positives."""
        return self.global_batch(number)[self.rank :: self.world_size]


def _number(batch_size: int, num_positives: int | None, positive_rate: float | None) -> int:
    if (num_positives is None) == (positive_rate is None):
        raise ValueError(
            f'set either num_positives or positive_rate, got num_positives={num_positives!r} and '
            f'positive_rate={positive_rate!r}'
        )
    number = num_positives
    if number is None:
        number = int(positive_rate * batch_size + 0.5)
    if not 0 < number < batch_size:
        raise ValueError(
            f'num_positives={num_positives!r}, positive_rate={positive_rate!r} make {number} '
            f'positives in a batch of batch_size={batch_size}; a ranking requires at least one '
            'positive and one negative'
        )
    return number


def _only_class(dataset, classes: np.ndarray) -> int:
    names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
    size = len(names) if names else int(classes.max(initial=0)) + 1
    if size > 2:
        raise ValueError(
            f'the data set has {size} classes; set positive_class to the index of the positive '
            'one, or use mmrank.MultiLabelPositiveSampler'
        )
    return size - 1
