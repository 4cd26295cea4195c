"""Samplers of batches: images by class, positives by rate, positive pairs."""

from collections.abc import Sized

import numpy as np

from mmrank.datasets.batch_stream import BatchStream
from mmrank.datasets.labels import class_labels, class_names, label_pairs
from mmrank.datasets.permutation import permutation
from mmrank.errors import UserError, UserTypeError
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


@DATA_SAMPLERS.register_module()
class InBatchPairSampler(BatchStream):
    """Batches of positive pairs: an epoch is cut from one permutation.

    So each batch is uniform without replacement, and in an epoch no pair comes twice. All batches
    have ``batch_size`` pairs, for the losses count on it: up to ``batch_size - 1`` pairs are left
    over in an epoch, others in each.

    Where the data set has ``sampling='sogram'`` a batch is two independent samples, cut from two
    permutations, one behind the other, and a rank yields ``2 * batch_size / W`` indices for it.

    With ``num_uniform`` as many right entities follow, drawn uniformly without replacement: further
    negatives for ``mmrank.InBatchSoftmaxLoss``, as in Yang et al., Mixed Negative Sampling, WWW
    2020. Right entity j is the index ``|O| + j``; a rank yields ``(batch_size + num_uniform) / W``.

    Args:
        dataset: A ``mmrank.InteractionDataset``.
        batch_size: Pairs in a sample; for it, ``seed`` and ``infinite`` see :class:`BatchStream`.
        num_uniform: Right entities to draw for a batch, over all ranks; W must divide it.

    Example:
        >>> train_dataloader = dict(
        ...     batch_size=1024,  # of this rank
        ...     collate_fn=dict(type='mmrank.pair_collate'),
        ...     sampler=dict(type='mmrank.InBatchPairSampler',
        ...                  batch_size=1024))
    """

    def __init__(
        self,
        dataset,
        batch_size: int,
        seed: int | None = None,
        infinite: bool = False,
        num_uniform: int = 0,
    ) -> None:
        if not hasattr(dataset, 'sampling'):
            what = f'{type(dataset).__name__} has no positive pairs'
            raise UserTypeError(what, 'a mmrank.InteractionDataset without a wrapper')
        self._num_pairs = len(dataset.interactions)
        self._num_right = dataset.interactions.shape[1]
        super().__init__(batch_size, self._num_pairs, seed, infinite)
        self.check_enough(self._num_pairs, 'positive pairs to sample without replacement')
        self.num_samples = 2 if dataset.sampling == 'sogram' else 1
        most = 0 if dataset.sampling == 'sogram' else self._num_right
        if not 0 <= num_uniform <= most or num_uniform % self.world_size:
            what = f'num_uniform={num_uniform} with sampling={dataset.sampling!r}'
            fix = f'from 0 to {most}, and a multiple of the number of ranks, {self.world_size}'
            raise UserError(what, fix)
        self.num_uniform = num_uniform
        self.share = self.share * self.num_samples + num_uniform // self.world_size

    def rank_batch(self, number: int) -> np.ndarray:
        """The pairs of this rank: of the first sample, then the second; then right entities."""
        epoch, batch = divmod(number, self.num_batches)
        parts = []
        for sample in range(self.num_samples):
            order = permutation(self._num_pairs, self.seed, epoch, sample)
            parts.append(self.own_part(order[batch * self.batch_size :]))
        if self.num_uniform:
            drawn = np.argsort(self.generator(epoch, batch, 2).random(self._num_right))
            drawn = drawn[: self.num_uniform].reshape(self.world_size, -1)[self.rank]
            parts.append(self._num_pairs + drawn)
        return np.concatenate(parts)


@DATA_SAMPLERS.register_module()
class ClassPairSampler(BatchStream):
    """Draws positive pairs of the label matrix that classes define.

    The pairs (i, j), i != j, of two images of one class are the set O of in-batch sampling. Each
    batch is a uniform sample of them without replacement, as ``mmrank.InBatchLoss`` assumes; a PK
    batch is none. An image of a class of c is in 2 (c - 1) pairs, so large classes come more often,
    which the unbiased loss makes up for. O is not listed: the memory is O(number of images).

    An epoch shows each image about twice. A batch of a rank is the left images of its pairs, then
    the right ones: ``2 * batch_size / W`` indices, the ``batch_size`` of the data loader. Train it
    with ``mmrank.InBatchRetrievalHead``.

    Args:
        dataset: See :func:`~mmrank.datasets.labels.class_labels`. Images that are alone in
            their class are in no pair.
        batch_size: Pairs in a batch, over all ranks; W must divide it.
        seed, infinite: See :class:`BatchStream`.
    """

    def __init__(
        self, dataset, batch_size: int, seed: int | None = None, infinite: bool = False
    ) -> None:
        labels = class_labels(dataset)
        self._images = np.argsort(labels, kind='stable')
        _, first, place, sizes = np.unique(
            labels[self._images], return_index=True, return_inverse=True, return_counts=True
        )
        # Of each image, in the order of the classes: where its class begins, and the number of its
        # first pair.
        self._class_starts = first[place]
        self._pair_starts = np.cumsum(sizes[place] - 1) - (sizes[place] - 1)
        self.num_pairs = int((sizes * (sizes - 1)).sum())
        super().__init__(batch_size, int(sizes[sizes > 1].sum()), seed, infinite)
        self.check_enough(self.num_pairs, 'pairs of two images of one class')
        self.share *= 2

    def rank_batch(self, number: int) -> np.ndarray:
        """Left images of the pairs of this rank, then right ones."""
        pairs = self.own_part(_distinct(self.generator(number), self.batch_size, self.num_pairs))
        left = np.searchsorted(self._pair_starts, pairs, side='right') - 1
        start = self._class_starts[left]
        right = start + pairs - self._pair_starts[left]
        # The image itself is passed over.
        right += right >= left
        return self._images[np.concatenate([left, right])]


def _distinct(rng: np.random.Generator, count: int, below: int) -> np.ndarray:
    """A uniform sample of ``count`` integers below ``below``, without replacement."""
    found = np.zeros(0, dtype=np.int64)
    while len(found) < count:
        more = rng.random(count + 16) * below
        found = np.concatenate([found, more.astype(np.int64)])
        # The first distinct ones of independent draws are such a sample.
        _, first = np.unique(found, return_index=True)
        found = found[np.sort(first)]
    return found[:count]
