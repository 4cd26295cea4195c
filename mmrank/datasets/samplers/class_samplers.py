"""Batches by class: P classes with K images each, or a fixed number of positives."""

from collections.abc import Sized

import numpy as np

from mmrank.datasets.labels import class_labels, class_names, label_pairs
from mmrank.datasets.permutation import permutation
from mmrank.datasets.samplers.batch_stream import BatchStream
from mmrank.errors import UserError
from mmrank.registry import DATA_SAMPLERS
from mmrank.settings import check_at_least, check_within


@DATA_SAMPLERS.register_module()
class PKSampler(BatchStream):
    """Batches of exactly ``batch_size / num_per_class`` classes.

    Each batch is drawn independently: first its classes, no class twice, then ``num_per_class``
    images of each, no image twice where the class has enough. A class with a single image is
    skipped: its only positive would be itself. Rank r of W takes the r-th part of
    the batch's classes, whole classes only, hence W must divide ``batch_size / num_per_class``.

    Args:
        dataset: See :func:`~mmrank.datasets.labels.class_labels`.
        num_per_class: Images of one class in a batch, at least 2.
        batch_size, seed, infinite: See :class:`BatchStream`.

    Example:
        >>> train_dataloader = dict(
        ...     batch_size=112,  # of this rank
        ...     sampler=dict(type='mmrank.PKSampler', batch_size=112,
        ...                  num_per_class=4, infinite=True))
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_per_class: int = 4,
        seed: int | None = None,
        infinite: bool = False,
    ) -> None:
        check_at_least(2, num_per_class=num_per_class)
        self.num_per_class = num_per_class
        labels = class_labels(dataset)
        # Images by class: the images of class c are _images[_starts[c] : _starts[c] + _sizes[c]].
        self._images = np.argsort(labels, kind='stable')
        names, starts, sizes = np.unique(
            labels[self._images], return_index=True, return_counts=True
        )
        usable = sizes >= 2
        self._starts = starts[usable]
        self._sizes = sizes[usable]
        super().__init__(batch_size, int(self._sizes.sum()), seed, infinite, unit=num_per_class)
        self.num_classes = batch_size // num_per_class
        if len(self._sizes) < self.num_classes:
            raise UserError(
                f'a batch of batch_size={batch_size} with num_per_class={num_per_class} needs '
                f'{self.num_classes} classes of at least 2 images, but of the {len(names)} classes '
                f'of the data set only {len(self._sizes)} have so many. Fix: a smaller batch_size '
                'or a larger num_per_class'
            )

    def global_batch(self, number: int) -> np.ndarray:
        """(P, num_per_class) indices of a batch, one class a row, the same on every rank."""
        rng = self.generator(number)
        keys = rng.random(len(self._sizes))
        chosen = np.argpartition(keys, self.num_classes - 1)
        chosen = np.sort(chosen[: self.num_classes])
        chosen = chosen[np.argsort(rng.random(len(chosen)))]
        sizes = self._sizes[chosen]
        first = np.cumsum(sizes) - sizes
        row = np.repeat(np.arange(len(sizes)), sizes)
        inside = np.arange(len(row)) - first[row]
        shuffled = np.lexsort((rng.random(len(row)), row))
        turn = np.arange(self.num_per_class) % sizes[:, None]
        place = inside[shuffled[first[:, None] + turn]]
        return self._images[self._starts[chosen][:, None] + place]

    def rank_batch(self, number: int) -> np.ndarray:
        return self.own_part(self.global_batch(number).ravel())


@DATA_SAMPLERS.register_module()
class PositiveRateSampler(BatchStream):
    """Batches of exactly n+ positives and ``batch_size`` - n+ negatives.

    In a long-tailed set a random batch has few positives, often none, and a ranking loss then
    learns little. Positives and negatives are each dealt out in shuffled rounds, so that within a
    round every image comes once. The ranks take turns in the positives and then in the negatives:
    their numbers of positives differ by one at most.

    Args:
        dataset: Of one class, or of two, of which the second is the positive one; see
            :func:`~mmrank.datasets.labels.label_pairs`.
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
        for name, members, count in (
            ('positives', np.flatnonzero(is_positive), self.num_positives),
            ('negatives', np.flatnonzero(~is_positive), num_negatives),
        ):
            if not 0 < count <= len(members):
                raise UserError(
                    f'positive_rate={positive_rate!r} makes {count} {name} of class '
                    f'{positive_class} in a batch of batch_size={batch_size}, but the data set has '
                    f'only {len(members)}, and a ranking requires one at least. Fix: another '
                    'positive_rate or batch_size'
                )
            self._sides.append((members, count))

    def global_batch(self, number: int) -> np.ndarray:
        """The (batch_size,) indices of a batch, positives first."""
        parts = []
        for side, (members, count) in enumerate(self._sides):
            # The few that do not fill a batch wait for the next round: no batch holds one twice.
            round_number, place = divmod(number, len(members) // count)
            order = permutation(len(members), self.seed, side, round_number)
            parts.append(members[order[place * count :][:count]])
        return np.concatenate(parts)
