"""Batches of P classes with K images each."""

from collections.abc import Sized

import numpy as np
from mmengine.dist import get_dist_info

from mmrank.datasets.samplers.batch_stream import BatchStream
from mmrank.datasets.samplers.class_labels import class_labels
from mmrank.registry import DATA_SAMPLERS

_SMALL_CLASSES = ('repeat', 'skip')
_CLASS_WEIGHTS = ('uniform', 'size')


@DATA_SAMPLERS.register_module()
class PKSampler(BatchStream):
    """Batches of exactly ``batch_size / num_per_class`` classes.

    Each batch is drawn independently: first its classes, no class twice, then ``num_per_class``
    images of each, no image twice where the class has enough. Batch number t depends on the seed
    and t alone. So the batches are the same for every number of ranks, and a training resumes at
    any of them without drawing earlier ones.

    ``batch_size`` counts the images of all ranks. Rank r of W takes the r-th part of the batch's
    classes, whole classes only, hence W must divide ``batch_size / num_per_class``. The
    ``batch_size`` of the data loader is per rank: ``batch_size / W``.

    Every epoch has ``num_batches`` batches; batch i of epoch e is batch
    ``e * num_batches + i`` of the stream. With ``infinite`` the stream has no end, as
    ``IterBasedTrainLoop`` requires.

    Args:
        dataset: Has ``get_gt_labels()`` or ``get_cat_ids(index)``, as mmpretrain's data sets have;
            mmengine's wrappers ``ConcatDataset`` and ``RepeatDataset`` are seen through.
        batch_size: Images in a batch, over all ranks.
        num_per_class: Images of one class in a batch, at least 2.
        seed: Seed of the stream, the same on all ranks. None: drawn by mmengine on the first rank.
        small_classes: Of classes with fewer than ``num_per_class`` images, ``'repeat'`` takes every
            image, some more than once, and
            ``'skip'`` takes none. A class with a single image is always
            skipped: its only positive would be itself.
        class_weights: How likely a class is drawn: ``'uniform'``, all alike, or ``'size'``, in
            proportion to its images.
        num_batches: Batches in an epoch. None: as many as the usable images fill, at least one.
        infinite: Iterate endlessly.

    Raises:
        ValueError: If the sizes do not divide, or the data set has too few classes with enough
            images.

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
        small_classes: str = 'repeat',
        class_weights: str = 'uniform',
        num_batches: int | None = None,
        infinite: bool = False,
    ) -> None:
        self.rank, self.world_size = get_dist_info()
        _check_choice('small_classes', small_classes, _SMALL_CLASSES)
        _check_choice('class_weights', class_weights, _CLASS_WEIGHTS)
        _check_sizes(batch_size, num_per_class, self.world_size)
        if num_batches is not None and num_batches < 1:
            raise ValueError(
                f'num_batches must be at least 1, got {num_batches}; None '
                'takes as many as the images fill'
            )
        self.batch_size = batch_size
        self.num_per_class = num_per_class
        self.num_classes = batch_size // num_per_class

        labels = class_labels(dataset)
        # Images by class: those of class c are
        # _images[_starts[c] : _starts[c] + _sizes[c]].
        self._images = np.argsort(labels, kind='stable')
        names, starts, sizes = np.unique(
            labels[self._images], return_index=True, return_counts=True
        )
        least = num_per_class if small_classes == 'skip' else 2
        usable = sizes >= least
        if usable.sum() < self.num_classes:
            raise ValueError(
                f'a batch of batch_size={batch_size} with num_per_class={num_per_class} needs '
                f'{self.num_classes} classes of at least {least} images, but of the {len(names)} '
                f'classes of the data set only {int(usable.sum())} have so many. Fix: a smaller '
                'batch_size'
                + (
                    "; small_classes='repeat'; a smaller num_per_class"
                    if small_classes == 'skip'
                    else ' or a larger num_per_class'
                )
            )
        self._starts, self._sizes = starts[usable], sizes[usable]
        self._weights = self._sizes.astype(float) if class_weights == 'size' else None
        if num_batches is None:
            num_batches = max(1, int(self._sizes.sum()) // batch_size)
        share = batch_size // self.world_size
        super().__init__(num_batches, share, seed=seed, infinite=infinite)

    def global_batch(self, number: int) -> np.ndarray:
        """Draw one batch of the stream.

        Args:
            number: Which, from 0.

        Returns:
            (batch_size / num_per_class, num_per_class) indices, one class a row, the same on every
            rank.
        """
        # Only uniform numbers and sorts are used: the bits behind them stay the same in all
        # versions of NumPy.
        rng = self.generator(number)
        keys = rng.random(len(self._sizes))
        if self._weights is not None:
            # Efraimidis and Spirakis 2006: the smallest exponential variables are a weighted sample
            # without replacement.
            keys = -np.log1p(-keys) / self._weights
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
        """The classes of this rank in a batch."""
        begin = self.rank * self.share
        return self.global_batch(number).ravel()[begin : begin + self.share]


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f'{name} must be one of {choices}, got {value!r}')


def _check_sizes(batch_size: int, num_per_class: int, world_size: int) -> None:
    if num_per_class < 2:
        raise ValueError(
            f'num_per_class must be at least 2, got {num_per_class}: an image '
            'needs another one of its class'
        )
    if batch_size < 1 or batch_size % num_per_class:
        raise ValueError(
            f'batch_size={batch_size} must be a positive multiple of num_per_class={num_per_class}'
        )
    num_classes = batch_size // num_per_class
    if num_classes % world_size:
        raise ValueError(
            f'the {num_classes} classes of a batch (batch_size={batch_size} / '
            f'num_per_class={num_per_class}) cannot be divided equally among {world_size} ranks. '
            f'Fix: set a batch_size that is a multiple of {num_per_class * world_size}'
        )
