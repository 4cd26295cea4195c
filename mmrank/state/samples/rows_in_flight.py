"""Rows on their way between a GPU and a table in host memory."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class _Write:
    """Rows that a batch sends back."""

    ids: Tensor
    entries: Tensor
    host_ids: Tensor
    host_entries: Tensor
    arrival: torch.cuda.Event


@dataclass
class _LookUp:
    """Rows that a batch requested."""

    host_ids: Tensor
    ids: Tensor
    entries: Tensor
    arrival: torch.cuda.Event


class RowsInFlight:
    """Reads ahead and writes behind, so that neither side waits.

    A look-up is sent to the GPU on a stream of its own, beside whatever runs there. It may be read
    before earlier batches have been written: what they wrote is still on the GPU, and there it
    takes the place of what was read, so the answer is that of a table without delay, bit for bit.

    Attributes:
        writes: Writes that are not in the table yet, oldest first.
        look_up: The look-up on its way, or None. The table has not changed since it was read.
    """

    def __init__(self) -> None:
        self.writes: deque[_Write] = deque()
        self.look_up: _LookUp | None = None

    def send(self, ids: Tensor, entries: Tensor) -> None:
        """Start a write.

        Args:
            ids: (n,) on the GPU; what is repeated has equal entries.
            entries: (quantities, n) on the GPU.
        """
        copies, arrival = to_host(ids, entries)
        self.writes.append(_Write(ids, entries, *copies, arrival))

    def arrived(self, wait: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """What the table has to take in, in order; a look-up is dropped.

        Args:
            wait: Wait for the GPU until nothing is on its way. If not, only what has come.

        Yields:
            (n,) indices and (quantities, n) entries, on the host.
        """
        self.look_up = None
        while self.writes and (wait or self.writes[0].arrival.query()):
            write = self.writes.popleft()
            write.arrival.synchronize()
            yield write.host_ids, write.host_entries

    def ask(self, ids: Tensor, entries: Tensor, device: torch.device) -> None:
        """Start a look-up; it replaces one that was never awaited.

        Args:
            ids: (n,) on the host.
            entries: (quantities, n) of the table, which has taken in all that has arrived.
            device: The GPU.
        """
        copies, arrival = to_device(device, ids, entries)
        self.look_up = _LookUp(ids, *copies, arrival)

    def asked(self, ids: Tensor) -> bool:
        """Whether a look-up of these indices is on its way."""
        if self.look_up is None:
            return False
        own = self.look_up.host_ids
        if own is ids:
            return True
        alike = (own.device, own.dtype) == (ids.device, ids.dtype)
        return alike and torch.equal(own, ids)

    def answer(self) -> Tensor:
        """(quantities, n) entries of the look-up, on the GPU."""
        look_up, self.look_up = self.look_up, None
        receive(look_up.arrival, look_up.ids, look_up.entries)
        ids, entries = look_up.ids.long(), look_up.entries
        for write in self.writes:
            entries = overwritten(entries, ids, write.ids, write.entries)
        return entries


def overwritten(entries: Tensor, ids: Tensor, new_ids: Tensor, new_entries: Tensor) -> Tensor:
    """Replace the entries of samples that have newer ones.

    Args:
        entries: (quantities, n).
        ids: (n,) samples, repeated or not.
        new_ids: (m,) samples; what is repeated has equal entries.
        new_entries: (quantities, m).

    Returns:
        (quantities, n).
    """
    if not new_ids.numel():
        return entries
    new_ids, order = new_ids.long().sort()
    place = torch.searchsorted(new_ids, ids).clamp(max=new_ids.numel() - 1)
    newer = new_entries[:, order[place]].to(entries.dtype)
    return torch.where(new_ids[place] == ids, newer, entries)


def to_device(device: torch.device, *tensors: Tensor) -> tuple[list[Tensor], torch.cuda.Event]:
    """Copy from the host beside what the GPU does; and when they have come."""
    stream = _look_up_stream(device)
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
    copies = [
        torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
        for x in tensors
    ]
    arrival = torch.cuda.Event()
    arrival.record(torch.cuda.current_stream(tensors[0].device))
    return copies, arrival


_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def _look_up_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream(device)
    return _STREAMS[device]
