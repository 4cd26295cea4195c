"""Batches of pairs of images of one class, uniform without replacement."""

import numpy as np

from mmrank.datasets.samplers.batch_stream import BatchStream, rank_and_share
from mmrank.datasets.samplers.class_labels import class_labels
from mmrank.registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class ClassPairSampler(BatchStream):
    """Draws positive pairs of the label matrix that classes define.

    The pairs (i, j), i != j, of two images of one class are the set O of in-batch sampling. Each
    batch is a uniform sample of them without replacement, as ``mmrank.InBatchLoss`` assumes; a PK
    batch is none. An image of a class of c is in 2 (c - 1) pairs, so large classes come more often,
    which the unbiased loss makes up for. O is not listed: the memory
    is O(number of images).

    A batch of a rank is the left images of its pairs, then the right ones:
    ``2 * batch_size / W`` indices, the ``batch_size`` of the data loader. Train it with
    ``mmrank.InBatchRetrievalHead``.

    Args:
        dataset: See :func:`.class_labels.class_labels`. Images that are alone in their class are in
            no pair.
        batch_size: Pairs in a batch, over all ranks; W must divide it.
        num_batches: Batches in an epoch. None: as many as show each image about twice, at least
            one.
        seed: See :class:`BatchStream`.
        infinite: See :class:`BatchStream`.

    Raises:
        TypeError: If the classes are unknown.
        ValueError: If there are fewer pairs than a batch has, or the batch cannot be dealt out to
            the ranks.
    """

    def __init__(
        self,
        dataset,
        batch_size: int,
        num_batches: int | None = None,
        seed: int | None = None,
        infinite: bool = False,
    ) -> None:
        self.rank, self._part = rank_and_share(batch_size, 'batch_size')
        self.batch_size = batch_size
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
        if batch_size > self.num_pairs:
            raise ValueError(
                f'batch_size={batch_size}, but there are only '
                f'{self.num_pairs} pairs of two images of one class'
            )
        if num_batches is None:
            num_batches = max(1, int(sizes[sizes > 1].sum()) // batch_size)
        share = 2 * self._part
        super().__init__(num_batches, share, seed=seed, infinite=infinite)

    def rank_batch(self, number: int) -> np.ndarray:
        """Left images of the pairs of this rank, then right ones."""
        rng = self.generator(number)
        pairs = np.zeros(0, dtype=np.int64)
        while len(pairs) < self.batch_size:
            more = rng.random(self.batch_size + 16) * self.num_pairs
            pairs = np.concatenate([pairs, more.astype(np.int64)])
            # The first distinct ones of independent draws are a uniform
            # sample without replacement.
            _, first = np.unique(pairs, return_index=True)
            pairs = pairs[np.sort(first)]
        begin = self.rank * self._part
        pairs = pairs[: self.batch_size][begin : begin + self._part]
        left = np.searchsorted(self._pair_starts, pairs, side='right') - 1
        start = self._class_starts[left]
        right = start + pairs - self._pair_starts[left]
        # The image itself is passed over.
        right += right >= left
        return self._images[np.concatenate([left, right])]
