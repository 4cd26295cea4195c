"""A line in the log every now and then while queries are ranked."""

import logging
import time

from mmengine.logging import print_log

# Seconds between two lines.
_INTERVAL = 10.0


class RetrievalProgress:
    """Logs how many queries are ranked and the seconds left."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Log, unless the last line is recent or the work is done.

        Args:
            done: Queries that are ranked.
            total: Queries to rank.
        """
        now = time.monotonic()
        if now - self._last < _INTERVAL or done == total:
            return
        self._last = now
        left = (now - self._start) / done * (total - done)
        print_log(
            f'retrieval: {done} of {total} queries ranked, {left:.0f} s left',
            logger='current',
            level=logging.INFO,
        )
