"""Rows on their way between a GPU and a table in host memory."""

from collections import deque, namedtuple

import torch
from torch import Tensor

# Rows that a batch sends back, and that it requested.
_Write = namedtuple('_Write', 'ids entries host_ids host_entries arrival')
_LookUp = namedtuple('_LookUp', 'host_ids ids entries arrival')


class RowsInFlight:
    """Reads ahead and writes behind, so that neither side waits.

    A look-up is sent to the GPU on a stream of its own, alongside whatever runs there. It may be
    read before earlier batches have been written: what they wrote is still on the GPU, and there it
    takes the place of what was read, so a table without delay answers the same, bit for bit.

    Attributes:
        writes: Writes that are not in the table yet, oldest first.
        look_up: The look-up on its way, or None. The table has not changed since it was read.
    """

    def __init__(self) -> None:
        self.writes: deque[_Write] = deque()
        self.look_up: _LookUp | None = None

    def prefetch(self, table, ids: Tensor, device: torch.device) -> None:
        """Start to send entries of a ``SampleState`` to a GPU; replaces what was never fetched."""
        if is_far(table, device):
            self._request_rows(table, ids, device)

    def fetch(self, table, ids: Tensor, device: torch.device) -> Tensor:
        """(quantities, n) entries of (n,) ids, repeated or not, on ``device``."""
        if not is_far(table, device):
            self.flush(table)
            return table.read(ids, device)
        if not self._requested(ids):
            self._request_rows(table, ids.to(table.device), device)
        look_up = self.look_up
        self.look_up = None
        receive(look_up.arrival, look_up.ids, look_up.entries)
        ids = look_up.ids.long()
        entries = look_up.entries
        for write in self.writes:
            entries = overwritten(entries, ids, write.ids, write.entries)
        return entries

    def store(self, table, ids: Tensor, entries: Tensor) -> None:
        """Start a write of (quantities, n) entries; what is repeated has equal entries."""
        if not is_far(table, entries.device):
            self.flush(table)
            table.write(ids, entries)
            return
        ids = ids.to(entries.device)
        copies, arrival = to_host(ids, entries)
        self.writes.append(_Write(ids, entries, *copies, arrival))

    def flush(self, table) -> None:
        """Wait until the table has all that was stored; drops a look-up."""
        self._apply_writes(table, wait=True)

    def forget(self) -> None:
        """Drop all that is on its way."""
        self.__init__()

    def _request_rows(self, table, ids: Tensor, device: torch.device) -> None:
        self._apply_writes(table, wait=False)
        copies, arrival = to_device(device, ids, table.read(ids, table.device))
        self.look_up = _LookUp(ids, *copies, arrival)

    def _apply_writes(self, table, wait: bool) -> None:
        self.look_up = None
        while self.writes and (wait or self.writes[0].arrival.query()):
            write = self.writes.popleft()
            write.arrival.synchronize()
            table.write(write.host_ids, write.host_entries)

    def _requested(self, ids: Tensor) -> bool:
        """Whether a look-up of these indices is on its way."""
        if self.look_up is None:
            return False
        own = self.look_up.host_ids
        alike = (own.device, own.dtype) == (ids.device, ids.dtype)
        return own is ids or (alike and torch.equal(own, ids))


def is_far(table, device: torch.device) -> bool:
    """Whether a table in host memory serves a GPU."""
    return table.device.type == 'cpu' and device.type == 'cuda'


def overwritten(entries: Tensor, ids: Tensor, new_ids: Tensor, new_entries: Tensor) -> Tensor:
    """Replace the (quantities, n) entries of the (n,) samples that have newer ones.

    What is repeated in the (m,) ``new_ids`` has equal (quantities, m) ``new_entries``.
    """
    if not new_ids.numel():
        return entries
    new_ids, order = new_ids.long().sort()
    place = torch.searchsorted(new_ids, ids).clamp(max=new_ids.numel() - 1)
    newer = new_entries[:, order[place]].to(entries.dtype)
    return torch.where(new_ids[place] == ids, newer, entries)


_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def to_device(device: torch.device, *tensors: Tensor) -> tuple[list[Tensor], torch.cuda.Event]:
    """Copy from the host alongside what the GPU does; and when they have come."""
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream(device)
    stream = _STREAMS[device]
    with torch.cuda.stream(stream):
        copies = [x.pin_memory().to(device, non_blocking=True) for x in tensors]
        arrival = torch.cuda.Event()
        arrival.record(stream)
    return copies, arrival


def receive(arrival: torch.cuda.Event, *copies: Tensor) -> None:
    """Let the current stream of the GPU use what :func:`to_device` sends."""
    stream = torch.cuda.current_stream(copies[0].device)
    stream.wait_event(arrival)
    for copy in copies:
        # Its memory is the other stream's, which must not reuse it too soon.
        copy.record_stream(stream)


def to_host(*tensors: Tensor) -> tuple[list[Tensor], torch.cuda.Event]:
    """Copy from a GPU, after what it does now; and when they have come."""
    copies = []
    for x in tensors:
        copy = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        copies.append(copy.copy_(x, non_blocking=True))
    arrival = torch.cuda.Event()
    arrival.record(torch.cuda.current_stream(tensors[0].device))
    return copies, arrival
