"""A link to a GPU, played on the CPU, that brings things late."""

import pytest
import torch

from mmrank.state import rows_in_flight


class Arrival:
    """Replaces the event of a copy."""

    def __init__(self, link, deliver):
        self.link, self.deliver, self.come = link, deliver, False

    def query(self):
        return self.come

    def synchronize(self):
        self.link.waits += not self.come
        self.link.bring(self)


class SlowLink:
    """All state with ``storage='host'`` takes part.

    Attributes:
        on_way: Arrivals to come, oldest first.
        waits: How often the host waited for one.
        asked: Number of look-ups.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.on_way, self.waits, self.asked = [], 0, 0
        monkeypatch.setattr(rows_in_flight, 'to_host', self.to_host)
        monkeypatch.setattr(rows_in_flight, 'to_device', self.to_device)
        monkeypatch.setattr(rows_in_flight, 'receive', self.receive)
        monkeypatch.setattr(rows_in_flight, 'is_far', lambda *_: True)

    def bring(self, last):
        """Copies come in order; these are the ones up to ``last``."""
        while not last.come:
            arrival = self.on_way.pop(0)
            arrival.deliver()
            arrival.come = True

    def to_host(self, *tensors):
        # Nonsense until it has come.
        copies = [torch.full_like(x, -1) for x in tensors]
        values = [x.clone() for x in tensors]

        def deliver():
            for copy, value in zip(copies, values):
                copy.copy_(value)

        self.on_way.append(Arrival(self, deliver))
        return copies, self.on_way[-1]

    def to_device(self, device, *tensors):
        self.asked += 1
        # Nonsense until it is received.
        return [torch.full_like(x, -1) for x in tensors], tensors

    def receive(self, arrival, *copies):
        for copy, tensor in zip(copies, arrival):
            copy.copy_(tensor)
