"""Counting on several CPU threads, each with tiles of its own."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from .retrieval_metrics_counting import count_rows_at_or_above


class RowWorkers:
    """Counts tiles of rows on as many threads as torch uses.

    A tile that fits the cache takes tens of microseconds per operation:
    torch's own threads, which wait for each other after each, would spend
    more time waiting than counting, above all on a busy machine.

    Args:
        device: Device of the scores; one worker unless it is the CPU.

    Attributes:
        count: Number of workers.
    """

    def __init__(self, device: torch.device) -> None:
        self.count = torch.get_num_threads() if device.type == 'cpu' else 1
        self._pool = None

    def __enter__(self) -> 'RowWorkers':
        if self.count > 1:
            self._pool = ThreadPoolExecutor(
                self.count, 'mmrank-rows', torch.set_num_threads, (1,)
            )
        return self

    def __exit__(self, *exception) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
            # The workers' setting is also that of threads yet to come.
            torch.set_num_threads(self.count)

    def count_tiles(
        self, scores: Tensor, thresholds: Tensor, tile: int
    ) -> Tensor:
        """``count_rows_at_or_above``, ``tile`` rows at a time."""
        pairs = scores.split(tile), thresholds.split(tile)
        apply = map if self._pool is None else self._pool.map
        return torch.cat(list(apply(count_rows_at_or_above, *pairs)))
