"""Batches with a fixed number of positives."""

from collections.abc import Sized

import numpy as np

from mmrank.datasets.samplers.batch_stream import BatchStream
from mmrank.datasets.samplers.labels import class_names, label_pairs
from mmrank.errors import UserError
from mmrank.registry import DATA_SAMPLERS
from mmrank.settings import check_within


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
        check_within('[0, 1]', positive_rate=positive_rate)
        self.num_positives = int(positive_rate * batch_size + 0.5)
        num_negatives = batch_size - self.num_positives
        items, classes = label_pairs(dataset)
        num_classes = len(class_names(dataset)) or int(classes.max(initial=0)) + 1
        positive_class = num_classes - 1
        if positive_class > 1:
            raise UserError(
                f'the data set has {positive_class + 1} classes, of which none is the positive '
                'one. Fix: classes=[...] of the data set, to rank one class'
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
