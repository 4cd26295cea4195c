"""Batches of cells of the whole label matrix."""

import numpy as np

from mmrank.datasets.samplers.batch_stream import BatchStream, check_sampling, rank_and_share
from mmrank.registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class NaivePairSampler(BatchStream):
    """Batches of pairs of any left with any right entity, all alike likely.

    Source: "in-batch bias of two-tower models", section 3.2.1. Cell (i, j) is the index ``i * n +
    j``. No cell comes twice in a batch.

    Args:
        dataset: A ``mmrank.InteractionDataset`` with ``sampling='naive'``.
        batch_size: Cells in a batch, over all ranks; W ranks must divide it.
        num_batches: Batches in an epoch. None: as many as the positive pairs would fill, at least
            one.
        seed: See :class:`BatchStream`.
        infinite: See :class:`BatchStream`.

    Raises:
        TypeError: If the data set has no pairs.
        ValueError: If there are fewer cells than a batch has, or it cannot
            be dealt out to the ranks.
    """

    def __init__(
        self,
        dataset,
        batch_size: int,
        num_batches: int | None = None,
        seed: int | None = None,
        infinite: bool = False,
    ) -> None:
        pairs = check_sampling(dataset, ('naive',))
        self.rank, share = rank_and_share(batch_size, 'batch_size')
        self.batch_size = batch_size
        self._num_cells = pairs.shape[0] * pairs.shape[1]
        if batch_size > self._num_cells:
            raise ValueError(
                f'batch_size={batch_size}, but there are only '
                f'{self._num_cells} pairs of a left and a right entity'
            )
        if num_batches is None:
            num_batches = max(1, len(pairs) // batch_size)
        super().__init__(num_batches, share, seed=seed, infinite=infinite)

    def rank_batch(self, number: int) -> np.ndarray:
        """The cells of this rank."""
        rng = self.generator(number)
        cells = np.zeros(0, dtype=np.int64)
        while len(cells) < self.batch_size:
            more = rng.random(self.batch_size + 16) * self._num_cells
            cells = np.concatenate([cells, more.astype(np.int64)])
            # The first distinct ones of independent draws are a uniform
            # sample without replacement.
            _, first = np.unique(cells, return_index=True)
            cells = cells[np.sort(first)]
        begin = self.rank * self.share
        return cells[: self.batch_size][begin : begin + self.share]
