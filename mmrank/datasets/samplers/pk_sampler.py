"""Batches of P classes with K images each."""

from collections.abc import Sized

import numpy as np

from mmrank.datasets.samplers.batch_stream import BatchStream
from mmrank.datasets.samplers.labels import class_labels
from mmrank.errors import UserError
from mmrank.registry import DATA_SAMPLERS
from mmrank.settings import check_at_least


@DATA_SAMPLERS.register_module()
class PKSampler(BatchStream):
    """Batches of exactly ``batch_size / num_per_class`` classes.

    Each batch is drawn independently: first its classes, no class twice, then ``num_per_class``
    images of each, no image twice where the class has enough. A class with a single image is
    skipped: its only positive would be itself. Rank r of W takes the r-th part of
    the batch's classes, whole classes only, hence W must divide ``batch_size / num_per_class``.

    Args:
        dataset: See :func:`~mmrank.datasets.samplers.labels.class_labels`.
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
