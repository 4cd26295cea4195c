"""Batches with a fixed number of positives, of one class or of each."""

from collections.abc import Sequence, Sized

import numpy as np

from mmrank.checks import check_at_least
from mmrank.datasets.samplers.batch_stream import BatchStream
from mmrank.datasets.samplers.labels import label_pairs
from mmrank.errors import UserError
from mmrank.registry import DATA_SAMPLERS


class _ShuffledCycle:
    """The same number of members for every batch, in shuffled rounds.

    A round shuffles all members and deals ``count`` of them out to each batch; the few that do not
    fill one wait for the next round, so that no batch holds one twice. What a batch gets depends on
    the seed of the sampler and its number alone.
    """

    def __init__(self, sampler: BatchStream, tag: int, members: np.ndarray, count: int) -> None:
        self.sampler = sampler
        self.tag = tag
        self.members = members
        self.count = count
        self._shuffled_for: tuple[int, int] | None = None
        self._order = members

    def take(self, number: int) -> np.ndarray:
        """The (count,) members of a batch."""
        if not self.count:
            return self.members[:0]
        round_number, place = divmod(number, len(self.members) // self.count)
        if self._shuffled_for != (self.sampler.seed, round_number):
            keys = self.sampler.generator(self.tag, round_number).random(len(self.members))
            self._order = self.members[np.argsort(keys, kind='stable')]
            self._shuffled_for = self.sampler.seed, round_number
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
        items, classes = label_pairs(dataset)
        positive_class = max(0, len(_class_names(dataset, classes)) - 1)
        if positive_class > 1:
            raise UserError(
                f'the data set has {positive_class + 1} classes, of which none is the positive '
                'one. Fix: mmrank.MultiLabelPositiveSampler'
            )
        is_positive = np.zeros(len(dataset), dtype=bool)
        is_positive[items[classes == positive_class]] = True
        self._sides = []
        for tag, (name, members, count) in enumerate(
            (
                ('positives', np.flatnonzero(is_positive), self.num_positives),
                ('negatives', np.flatnonzero(~is_positive), num_negatives),
            )
        ):
            if not 0 < count <= len(members):
                raise UserError(
                    f'positive_rate={positive_rate!r} makes {count} {name} of class '
                    f'{positive_class} in a batch of batch_size={batch_size}, but the data set has '
                    f'only {len(members)}, and a ranking requires one at least. Fix: another '
                    'positive_rate or batch_size'
                )
            self._sides.append(_ShuffledCycle(self, tag, members, count))

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
        num_positives: n+ of each class, over all ranks.
        batch_size, seed, infinite: See :class:`BatchStream`.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_positives: int = 1,
        seed: int | None = None,
        infinite: bool = False,
    ) -> None:
        size = len(dataset)
        super().__init__(batch_size, size, seed, infinite)
        self.check_enough(size, 'images')
        check_at_least(1, num_positives=num_positives)
        items, classes = label_pairs(dataset)
        names = _class_names(dataset, classes)
        self._has = np.zeros((size, len(names)), dtype=bool)
        self._has[items, classes] = True
        counts = self._has.sum(0)
        self.num_positives = num_positives
        # So many are left at least, whatever classes come together.
        left = batch_size - num_positives * len(names)
        if left < 0 or counts.min(initial=num_positives) < num_positives:
            rarest = int(counts.argmin())
            raise UserError(
                f'num_positives={num_positives} of {len(names)} classes in a batch of batch_size='
                f'{batch_size}, and the data set has {counts[rarest]} of {names[rarest]}. Fix: a '
                'smaller num_positives, or a larger batch_size'
            )
        # The rarest first; equally rare ones in their order.
        self._classes = np.argsort(counts, kind='stable')
        self._members = [np.flatnonzero(column) for column in self._has.T]
        self._none = np.flatnonzero(~self._has.any(1))
        self._fill = _ShuffledCycle(self, 0, self._none, min(len(self._none), left))

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
            if count > 0:
                left = images[~taken[images]]
                take(left[np.argsort(rng.random(len(left)), kind='stable')[:count]])

        for label in self._classes:
            take_some(self._members[label], self.num_positives - found[label])
        take(self._fill.take(number))
        take_some(self._none, self.batch_size - taken.sum())
        take_some(np.arange(len(taken)), self.batch_size - taken.sum())
        return np.concatenate(batch)
