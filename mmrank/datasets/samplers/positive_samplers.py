"""Batches with a fixed number of positives, of one class or of each."""

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial

import numpy as np

from mmrank.datasets.samplers.batch_stream import BatchStream
from mmrank.datasets.samplers.labels import label_pairs
from mmrank.errors import UserError
from mmrank.registry import DATA_SAMPLERS


class ShuffledCycle:
    """The same number of members for every batch, in shuffled rounds.

    A round, of which ``generator`` returns the random numbers, shuffles all members and deals
    ``count`` of them out to each batch; the few that do not fill one wait for the next round, so
    that no batch holds one twice. What a batch gets depends on its number alone.
    """

    def __init__(
        self, members: np.ndarray, count: int, generator: Callable[[int], np.random.Generator]
    ) -> None:
        self.members = members
        self.count = count
        self._generator = generator
        #: Of the random numbers that made the order: another seed makes another one.
        self._state: Mapping | None = None
        self._order = members

    def take(self, number: int) -> np.ndarray:
        """The (count,) members of a batch."""
        if not self.count:
            return self.members[:0]
        round_number, place = divmod(number, len(self.members) // self.count)
        rng = self._generator(round_number)
        state = rng.bit_generator.state
        if state != self._state:
            keys = rng.random(len(self.members))
            self._order = self.members[np.argsort(keys, kind='stable')]
            self._state = state
        return self._order[place * self.count :][: self.count]


@DATA_SAMPLERS.register_module()
class PositiveRateSampler(BatchStream):
    """Batches of exactly n+ positives and ``batch_size`` - n+ negatives.

    In a long-tailed set a random batch has few positives, often none, and a ranking loss then
    learns little. Positives and negatives are each dealt out in shuffled rounds, so that within a
    round every image comes once. The ranks take turns in the positives and then in the negatives:
    their numbers of positives differ by one at most.

    Args:
        dataset: Of one class, or of two, of which the second is the positive one; see
            :func:`~mmrank.datasets.samplers.labels.label_pairs`.
        positive_rate: n+ as a share of the batch over all ranks, rounded.
        batch_size, seed, infinite: See :class:`BatchStream`.

    Raises:
        TypeError: If the labels are unknown.
        ValueError: If a setting makes no sense, or the data set has too few of either for a batch.

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
        positive_rate: float,
        seed: int | None = None,
        infinite: bool = False,
    ) -> None:
        super().__init__(batch_size, len(dataset), seed, infinite)
        self.num_positives = int(positive_rate * batch_size + 0.5)
        num_negatives = batch_size - self.num_positives
        if not (self.num_positives > 0 and num_negatives > 0):
            raise ValueError(
                f'positive_rate={positive_rate!r} makes {self.num_positives} positives in a batch '
                f'of batch_size={batch_size}; a ranking requires at least one positive and one '
                'negative'
            )
        items, classes = label_pairs(dataset)
        positive_class = max(0, len(_class_names(dataset, classes)) - 1)
        if positive_class > 1:
            raise ValueError(
                f'the data set has {positive_class + 1} classes, of which none is the positive '
                'one; use mmrank.MultiLabelPositiveSampler'
            )
        is_positive = np.zeros(len(dataset), dtype=bool)
        is_positive[items[classes == positive_class]] = True
        sides = (
            ('positives', np.flatnonzero(is_positive), self.num_positives, 'fewer'),
            ('negatives', np.flatnonzero(~is_positive), num_negatives, 'more'),
        )
        for name, members, count, change in sides:
            if count > len(members):
                raise UserError(
                    f'a batch takes {count} {name} of class {positive_class}, but the data set has '
                    f'only {len(members)}. Fix: a smaller batch_size, or {change} positives in it'
                )
        self._sides = [
            ShuffledCycle(members, count, partial(self.generator, tag))
            for tag, (_, members, count, _) in enumerate(sides)
        ]

    def global_batch(self, number: int) -> np.ndarray:
        """The (batch_size,) indices of a batch, positives first."""
        return np.concatenate([side.take(number) for side in self._sides])


def _class_names(dataset: object, classes: np.ndarray) -> Sequence:
    names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
    return names or range(int(classes.max(initial=-1)) + 1)


@DATA_SAMPLERS.register_module()
class MultiLabelPositiveSampler(BatchStream):
    """Batches with at least n+ positives of each class.

    The rarest class is served first. An image that was taken for one class counts for all that it
    has, so a common class may get more than its share when it occurs together with rarer ones. What
    is left of the batch is filled with images that have no class, in shuffled rounds; where there
    are too few of those, with any others. No image comes twice in a batch. Rank r takes every W-th
    image, and so its share of each class.

    Args:
        dataset: See :func:`~mmrank.datasets.samplers.labels.label_pairs`.
        num_positives: n+ of each class, over all ranks; or one number for each class.
        batch_size, seed, infinite: See :class:`BatchStream`.

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
        infinite: bool = False,
    ) -> None:
        size = len(dataset)
        super().__init__(batch_size, size, seed, infinite)
        self.check_enough(size, 'images')
        items, classes = label_pairs(dataset)
        names = _class_names(dataset, classes)
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
        """The (batch_size,) indices of a batch."""
        rng = self.generator(1, number)
        taken = np.zeros(len(self._has), dtype=bool)
        found = np.zeros(len(self._members), dtype=np.int64)
        batch: list[np.ndarray] = []

        def take(images: np.ndarray) -> None:
            taken[images] = True
            found[:] += self._has[images].sum(0)
            batch.append(images)

        def take_some(images: np.ndarray, count: int) -> None:
            left = images[~taken[images]]
            take(left[np.argsort(rng.random(len(left)), kind='stable')[:count]])

        for label in self._classes:
            wanted = self.num_positives[label] - found[label]
            if wanted > 0:
                take_some(self._members[label], wanted)
        take(self._fill.take(number))
        for others in (self._none, np.arange(len(taken))):
            missing = self.batch_size - sum(map(len, batch))
            if missing:
                take_some(others, missing)
        return np.concatenate(batch)


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
        raise UserError(
            f'a batch takes {numbers[label]} positives of {names[label]}, but '
            f'the data set has only {counts[label]}. Fix: set a smaller '
            'num_positives, optionally one number for each class'
        )
    if not 0 < numbers.sum() <= batch_size:
        raise UserError(
            f'num_positives={num_positives} are {numbers.sum()} images unless '
            f'an image has several classes, but batch_size={batch_size}. Fix: '
            'set a larger batch_size or fewer positives, at least one'
        )
    return numbers
