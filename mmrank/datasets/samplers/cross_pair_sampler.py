"""Batches of all combinations of some rows and some columns."""

import numpy as np

from mmrank.datasets.samplers.batch_stream import BatchStream, check_sampling, rank_and_share
from mmrank.registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class CrossPairSampler(BatchStream):
    """Batches of left and right entities, each uniform without replacement.

    Source: "in-batch bias of two-tower models", section 3.2.2. Row i is the index i, column j the
    index ``m + j``. Of W ranks each takes a part of the rows with all columns, ``num_rows / W +
    num_cols`` indices: the ``batch_size`` of the data loader.

    Args:
        dataset: A ``mmrank.InteractionDataset`` with ``sampling='cross'``.
        num_rows: Left entities in a batch, over all ranks; W must divide it.
        num_cols: Right entities in a batch.
        num_batches: Batches in an epoch. None: as many as show each row once, at least one.
        seed: See :class:`BatchStream`.
        infinite: See :class:`BatchStream`.

    Raises:
        TypeError: If the data set has no pairs.
        ValueError: If a number exceeds the entities, or the rows cannot be dealt out to the ranks.
    """

    def __init__(
        self,
        dataset,
        num_rows: int,
        num_cols: int,
        num_batches: int | None = None,
        seed: int | None = None,
        infinite: bool = False,
    ) -> None:
        self._shape = check_sampling(dataset, ('cross',)).shape
        self.rank, self._part = rank_and_share(num_rows, 'num_rows')
        for name, wanted, size in zip(('num_rows', 'num_cols'), (num_rows, num_cols), self._shape):
            if not 0 < wanted <= size:
                raise ValueError(
                    f'{name}={wanted} must be from 1 to {size}, the number '
                    'of entities to sample without replacement'
                )
        self.num_rows, self.num_cols = num_rows, num_cols
        if num_batches is None:
            num_batches = max(1, self._shape[0] // num_rows)
        share = self._part + num_cols
        super().__init__(num_batches, share, seed=seed, infinite=infinite)

    def rank_batch(self, number: int) -> np.ndarray:
        """Rows of this rank, then all columns, which begin at m."""
        rng = self.generator(number)
        rows = np.argsort(rng.random(self._shape[0]))[: self.num_rows]
        cols = np.argsort(rng.random(self._shape[1]))[: self.num_cols]
        begin = self.rank * self._part
        rows = rows[begin : begin + self._part]
        return np.concatenate([rows, self._shape[0] + cols])
