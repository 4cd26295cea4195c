"""Which rows of a table a process has."""

import math
from dataclasses import dataclass

import torch.distributed as dist

from mmrank.distributed import world_group


@dataclass(frozen=True)
class Shard:
    """Every ``parts``-th row of a table, from row ``part`` on.

    Neighbours in a data set are often visited together, such as the captions of an image, so they
    have different owners.

    Attributes:
        size: Rows of the whole table.
        part: Which shard, in ``[0, parts)``: the rank.
        parts: Number of shards: the world size. 1: the whole table.

    Example:
        >>> Shard(7, 1, 3).rows  # 1 and 4
        2
        >>> Shard(7, 1, 3).common(Shard(7, 0, 2))  # row 4
        (slice(1, None, 2), slice(2, None, 3))
    """

    size: int
    part: int = 0
    parts: int = 1

    @classmethod
    def of_this_process(cls, size: int) -> 'Shard':
        """The shard of this rank; the whole table in a single process."""
        group = world_group()
        if group is None:
            return cls(size)
        return cls(size, dist.get_rank(group), dist.get_world_size(group))

    @property
    def rows(self) -> int:
        """Number of rows of the shard."""
        return len(range(self.part, self.size, self.parts))

    @property
    def is_whole(self) -> bool:
        """Whether that is the whole table."""
        return self.parts == 1

    @property
    def place(self) -> slice:
        """Where its rows are in the whole table."""
        return slice(self.part, None, self.parts)

    def common(self, other: 'Shard') -> tuple[slice, slice] | None:
        """Rows that are in two shards of one table, of any numbers of parts.

        Args:
            other: The other shard.

        Returns:
            Where they are in this shard and in the other one, in one order; None if there are none.
        """
        step = math.lcm(self.parts, other.parts)
        first = next(
            (row for row in range(self.part, step, self.parts) if row % other.parts == other.part),
            self.size,
        )
        if first >= self.size:
            return None
        return (
            slice(first // self.parts, None, step // self.parts),
            slice(first // other.parts, None, step // other.parts),
        )
