"""The way of rows between the processes that need and that own them."""

import torch
import torch.distributed as dist
from torch import Tensor

from .sharding import Shard


class ShardRows:
    """Brings the rows of a batch from their owners, and what it measured to them.

    See :class:`~.rows_in_flight.RowsInFlight` for the methods.
    """

    def __init__(self) -> None:
        # The way of the rows fetched last; the way of rows to come, the rows, their arrival.
        self._route = self._look_up = None

    def prefetch(self, table, ids: Tensor, device: torch.device) -> None:
        if table.group is not None:
            self.forget()
            self._look_up = self._request_rows(table, ids)

    def fetch(self, table, ids: Tensor, device: torch.device) -> Tensor:
        if table.group is None:
            return table.read(ids, device)
        if self._look_up is None or self._look_up[0].ids is not ids:
            self.prefetch(table, ids, device)
        (self._route, found, work) = self._look_up
        self._look_up = None
        work.wait()
        return self._route.in_order(found).t().contiguous().to(device)

    def joined(self, table, news: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See ``SampleState.joined``: what all ranks measured of the rows of this shard."""
        own = self._route.owned
        return own, table.read(own, own.device).double(), self._route.give(news.t()).t()

    def store(self, table, ids: Tensor, entries: Tensor) -> None:
        self.forget()
        table.write(ids, entries)

    def flush(self, table) -> None:
        """Nothing to write."""

    def forget(self) -> None:
        """Drop what was read before a change, or for another batch."""
        if self._look_up is not None:
            self._look_up[-1].wait()
            self._look_up = None

    @staticmethod
    def _request_rows(table, ids: Tensor) -> tuple:
        """Ask the owners: the way of the rows, what they come into, what to wait for."""
        route = _route_of(ids, table.shard, table.device, table.group)
        return route, *route.ask(table.read(route.owned, table.device).t())


class RowRoute:
    """Which rows of a batch go where; all ranks make and use a route in the same order.

    The indices travel on the host: its processes have to know how many rows to expect, and would
    wait for a GPU. The rows travel on the ``device``. The (n,) ``ids`` may repeat; n may differ by
    rank, also be 0.
    """

    def __init__(self, ids: Tensor, shard: Shard, device: torch.device, group) -> None:
        self.ids = ids
        self.shard = shard
        self.device = device
        self._version = ids._version
        self._group = group
        near = _group_on_host(group)
        on_host = ids.detach().to('cpu', torch.long)
        owners = on_host % shard.parts
        order = owners.argsort(stable=True)
        asked = torch.bincount(owners, minlength=shard.parts)
        owed = torch.empty_like(asked)
        dist.all_to_all_single(owed, asked, group=near)
        self._asked = asked.tolist()
        self._owed = owed.tolist()
        owned = on_host.new_empty(sum(self._owed))
        dist.all_to_all_single(owned, on_host[order], self._owed, self._asked, group=near)
        #: (m,) int64 rows that are requested here, by rank and in the order of the batch of each.
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

    def ask(self, rows: Tensor) -> tuple[Tensor, dist.Work]:
        """Send (m, k) owned rows: what the own ones come into, by owner, and what to wait for."""
        found = rows.new_empty(len(self._order), rows.size(1))
        work = dist.all_to_all_single(
            found, rows.contiguous(), self._asked, self._owed, group=self._group, async_op=True
        )
        return found, work

    def in_order(self, found: Tensor) -> Tensor:
        """(n, k) rows in the order of the indices, of rows by owner."""
        return torch.empty_like(found).index_copy_(0, self._order, found)

    def give(self, rows: Tensor) -> Tensor:
        """Send (n, k) rows of the batch to their owners: (m, k), in the order of :attr:`owned`."""
        taken = rows.new_empty(len(self.owned), rows.size(1))
        dist.all_to_all_single(
            taken, rows[self._order].contiguous(), self._owed, self._asked, group=self._group
        )
        return taken


_last_route: RowRoute | None = None
_host_groups: tuple | None = None


def _route_of(ids: Tensor, shard: Shard, device: torch.device, group) -> RowRoute:
    """A :class:`RowRoute`, shared by the tables of a batch."""
    global _last_route
    if _last_route is None or not _last_route.is_for(ids, shard, device, group):
        _last_route = RowRoute(ids, shard, device, group)
    return _last_route


def _group_on_host(group):
    """The group, or one of the same ranks that can send from the host."""
    global _host_groups
    if 'cpu:' in dist.get_backend_config(group):
        return group
    if _host_groups is None or _host_groups[0] is not group:
        _host_groups = group, dist.new_group(backend='gloo')
    return _host_groups[1]
