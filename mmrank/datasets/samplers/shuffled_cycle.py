"""Draws that use up all members before one comes again."""

from collections.abc import Callable

import numpy as np


class ShuffledCycle:
    """The same number of members for every batch, in shuffled rounds.

    A round shuffles all members and deals them out; the few that do not fill
    a batch wait for the next round, so that no batch holds one twice. What a batch gets depends on
    its number alone.

    Args:
        members: (n,) indices.
        count: Members in a batch, at most n.
        generator: Returns the random numbers of a round by its number.

    Raises:
        ValueError: If there are fewer members than a batch takes.
    """

    def __init__(
        self, members: np.ndarray, count: int, generator: Callable[[int], np.random.Generator]
    ) -> None:
        if count > len(members):
            raise ValueError(f'{count} of only {len(members)} members')
        self.members, self.count = members, count
        self._generator = generator
        self._round, self._order = -1, members

    def take(self, number: int) -> np.ndarray:
        """The (count,) members of a batch."""
        if not self.count:
            return self.members[:0]
        batches = len(self.members) // self.count
        round_number, place = divmod(number, batches)
        if round_number != self._round:
            # Uniform numbers and a sort: the same in all versions of NumPy.
            keys = self._generator(round_number).random(len(self.members))
            self._order = self.members[np.argsort(keys, kind='stable')]
            self._round = round_number
        begin = place * self.count
        return self._order[begin : begin + self.count]
