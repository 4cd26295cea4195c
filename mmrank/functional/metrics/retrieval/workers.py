"""Several CPU threads, each with tiles of its own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch


class RowWorkers:
    """Works on tiles of rows with as many threads as torch uses.

    A tile that fits the cache takes tens of microseconds per operation:
    torch's own threads, which wait for each other after each, would spend
    more time waiting than working, above all on a busy machine.

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

    def map(self, function: Callable, *arguments: Sequence) -> Iterator:
        """``map(function, *arguments)``, spread over the workers."""
        apply = map if self._pool is None else self._pool.map
        return apply(function, *arguments)
