"""The way of rows between the processes that need and that own them."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from .shard import Shard


class RowRoute:
    """Which rows of a batch go where.

    The indices travel on the host: its processes have to know how many rows
    to expect, and would wait for a GPU. The rows travel on the device.

    All ranks have to make a route, and to use it, in the same order.

    Args:
        ids: (n,) integers in ``[0, size)``, repeated or not; n may differ by rank, also be 0. On a
            GPU the host waits for them.
        shard: What this rank owns.
        device: Where the rows are.
        group: Process group.

    Attributes:
        ids: What it was made for.
        owned: (m,) int64 indices of the rows that are requested here, by
            rank and in the order of the batch of each; on ``device``.
    """

    def __init__(self, ids: Tensor, shard: Shard, device: torch.device, group) -> None:
        self.ids, self.shard, self.device = ids, shard, device
        self._version, self._group = ids._version, group
        near = _group_on_host(group)
        on_host = ids.detach().to('cpu', torch.long)
        owners = on_host % shard.parts
        order = owners.argsort(stable=True)
        asked = torch.bincount(owners, minlength=shard.parts)
        owed = torch.empty_like(asked)
        dist.all_to_all_single(owed, asked, group=near)
        self._asked, self._owed = asked.tolist(), owed.tolist()
        owned = on_host.new_empty(sum(self._owed))
        dist.all_to_all_single(owned, on_host[order], self._owed, self._asked, group=near)
        self.owned = owned.to(device, non_blocking=True)
        self._order = order.to(device, non_blocking=True)

    def is_for(self, ids: Tensor, shard: Shard, device, group) -> bool:
        """Whether it was made for these very indices.

        That is the same object on all ranks, or on none. Equal numbers could be equal on some ranks
        only, and these would wait for the others.
        """
        return (
            self.ids is ids
            and self._version == ids._version
            and (self.shard, self.device) == (shard, device)
            and self._group is group
        )

    def ask(self, rows: Tensor) -> 'LookUp':
        """Start to send owned rows to those that need them.

        Args:
            rows: (m, k) contents of :attr:`owned`.

        Returns:
            What :meth:`LookUp.answer` awaits.
        """
        found = rows.new_empty(len(self._order), rows.size(1))
        work = dist.all_to_all_single(
            found, rows.contiguous(), self._asked, self._owed, group=self._group, async_op=True
        )
        return LookUp(self, found, self._order, work)

    def give(self, rows: Tensor) -> Tensor:
        """Send rows of the batch to their owners.

        Args:
            rows: (n, k), in the order of the indices.

        Returns:
            (m, k), in the order of :attr:`owned`.
        """
        taken = rows.new_empty(len(self.owned), rows.size(1))
        dist.all_to_all_single(
            taken, rows[self._order].contiguous(), self._owed, self._asked, group=self._group
        )
        return taken


@dataclass
class LookUp:
    """Rows that are on their way.

    Attributes:
        route: Their way.
        found: (n, k) rows, by owner.
        order: (n,) where each is in the batch.
        work: What to wait for.
    """

    route: RowRoute
    found: Tensor
    order: Tensor
    work: dist.Work

    def answer(self) -> Tensor:
        """(n, k) rows, in the order of the indices."""
        self.work.wait()
        return torch.empty_like(self.found).index_copy_(0, self.order, self.found)


_last_route: RowRoute | None = None


def route_of(ids: Tensor, shard: Shard, device: torch.device, group) -> RowRoute:
    """A :class:`RowRoute`; that of another table of the same batch.

    Args:
        ids: See :class:`RowRoute`.
        shard: See :class:`RowRoute`.
        device: See :class:`RowRoute`.
        group: See :class:`RowRoute`.
    """
    global _last_route
    last = _last_route
    if last is None or not last.is_for(ids, shard, device, group):
        _last_route = last = RowRoute(ids, shard, device, group)
    return last


_host_groups: tuple | None = None


def _group_on_host(group):
    """The group, or one of the same ranks that can send from the host."""
    global _host_groups
    if 'cpu:' in dist.get_backend_config(group):
        return group
    if _host_groups is None or _host_groups[0] is not group:
        _host_groups = group, dist.new_group(backend='gloo')
    return _host_groups[1]
