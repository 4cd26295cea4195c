"""Batches of positive pairs, uniform without replacement."""

import numpy as np

from mmrank.datasets.samplers.batch_stream import BatchStream, check_sampling, rank_and_share
from mmrank.registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class InBatchPairSampler(BatchStream):
    """Batches of positive pairs: an epoch is cut from one permutation.

    So each batch is uniform without replacement, and in an epoch no pair
    comes twice. All batches have ``batch_size`` pairs, for the losses count
    on it: up to ``batch_size - 1`` pairs are left over in an epoch, others in each.

    Where the data set has ``sampling='sogram'`` a batch is two independent samples, cut from two
    permutations, one behind the other, and a rank
    yields ``2 * batch_size / W`` indices for it.

    Args:
        dataset: A ``mmrank.InteractionDataset``.
        batch_size: Pairs in a sample, over all ranks; W ranks must divide
            it. The ``batch_size`` of the data loader is per rank.
        seed: See :class:`BatchStream`.
        infinite: See :class:`BatchStream`.

    Raises:
        TypeError: If the data set has no pairs.
        ValueError: If the batch is larger than the data set or cannot be
            dealt out to the ranks.

    Example:
        >>> train_dataloader = dict(
        ...     batch_size=1024,  # of this rank
        ...     collate_fn=dict(type='mmrank.pair_collate'),
        ...     sampler=dict(type='mmrank.InBatchPairSampler',
        ...                  batch_size=1024))
    """

    def __init__(
        self, dataset, batch_size: int, seed: int | None = None, infinite: bool = False
    ) -> None:
        pairs = check_sampling(dataset, ('in_batch', 'sogram'))
        self.rank, self._part = rank_and_share(batch_size, 'batch_size')
        if batch_size > len(pairs):
            raise ValueError(
                f'batch_size={batch_size}, but there are only {len(pairs)} '
                'positive pairs to sample without replacement'
            )
        self.batch_size, self._num_pairs = batch_size, len(pairs)
        self.num_samples = 2 if dataset.sampling == 'sogram' else 1
        super().__init__(
            len(pairs) // batch_size, self._part * self.num_samples, seed=seed, infinite=infinite
        )
        self._permuted_epoch, self._orders = -1, []

    def rank_batch(self, number: int) -> np.ndarray:
        """The pairs of this rank: of the first sample, then the second."""
        epoch, batch = divmod(number, self.num_batches)
        if epoch != self._permuted_epoch:
            # Uniform numbers and a sort: the same in all versions of NumPy.
            self._orders = [
                np.argsort(self.generator(epoch, i).random(self._num_pairs))
                for i in range(self.num_samples)
            ]
            self._permuted_epoch = epoch
        begin = batch * self.batch_size + self.rank * self._part
        return np.concatenate([order[begin : begin + self._part] for order in self._orders])
