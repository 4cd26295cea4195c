"""Bytes that the Triton kernels read and write, counted in the interpreter.

A GPU moves memory in sectors of 32 bytes. For each launch, and each tensor that it is given, two
things are counted:

* the sectors that are read and written at least once: what must go through
  the memory of the device, if what is used again stays in its cache;
* the bytes that the instructions ask for, from caches for the most part.

The logits and their gradient are used once a launch: for them the two agree. Needs
``TRITON_INTERPRET=1`` before triton is imported.
"""

import os
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum

from .dry_run import Launch, recorded_launches

#: Bytes of a sector, the smallest piece of memory that a GPU moves.
SECTOR = 32
#: Arguments that hold something for each score. The rest are tables.
STREAMS = ('neg_ptr', 'mask_ptr', 'out_ptr')
#: The kernels that go over the scores. The rest go over the positives.
SCORE_KERNELS = ('moment_kernel', 'gradient_kernel')


class _TensorAccess:
    """Which sectors of one tensor a launch touches."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.begin = tensor.data_ptr()
        self.end = self.begin + tensor.nbytes
        sectors = (self.end - 1) // SECTOR - self.begin // SECTOR + 1
        self.touched = {'read': np.zeros(sectors, bool), 'write': np.zeros(sectors, bool)}
        self.asked = {'read': 0, 'write': 0}

    def add(self, kind: str, addresses: np.ndarray, size: int) -> None:
        first = self.begin // SECTOR
        self.asked[kind] += addresses.size * size
        self.touched[kind][addresses.astype(np.int64) // SECTOR - first] = True


class TensorTraffic(NamedTuple):
    """Bytes that one launch moved from or to one tensor.

    Attributes:
        kernel: Name of the kernel.
        argument: Name of the argument.
        read: Bytes of the sectors that were read.
        written: Bytes of the sectors that were written.
        asked_read: Bytes that the instructions read; atomics read, too.
        asked_written: Bytes that they wrote.
    """

    kernel: str
    argument: str
    read: int
    written: int
    asked_read: int
    asked_written: int


class StepTraffic(NamedTuple):
    """What the kernels of one step move.

    Attributes:
        scores: Number of scores.
        floor: Bytes of reading each score twice and writing its gradient.
        by_tensor: One entry for each launch and tensor.
        cleared: Bytes of the sums that are set to 0 before.
        launches: Number of kernels, with the one that clears the sums.
    """

    scores: int
    floor: int
    by_tensor: list[TensorTraffic]
    cleared: int
    launches: int

    def per_score(self, streams: bool | None = None) -> float:
        """Bytes that go through the device's memory, for each score.

        Args:
            streams: True: those of :data:`STREAMS` alone. False: the others.
        """
        found = sum(
            x.read + x.written
            for x in self.by_tensor
            if streams is None or streams == self.is_stream(x)
        )
        cleared = 0 if streams else self.cleared
        return (found + cleared) / self.scores

    def is_stream(self, traffic: TensorTraffic) -> bool:
        """Whether the tensor holds something for each score."""
        return traffic.argument in STREAMS and traffic.kernel in SCORE_KERNELS

    def asked_per_score(self) -> float:
        """Bytes that instructions for a score read and write, all caches."""
        return (
            sum(x.asked_read + x.asked_written for x in self.by_tensor if x.kernel in SCORE_KERNELS)
            / self.scores
        )


@contextmanager
def _counted(launch: Launch, found: list[TensorTraffic]):
    """Count what the interpreter loads and stores inside the block."""
    from triton.runtime.interpreter import interpreter_builder as builder

    # Two arguments may name one piece of memory: it counts once.
    tensors: dict[int, _TensorAccess] = {}
    for name, value in launch.arguments.items():
        if isinstance(value, Tensor) and value.numel():
            tensors.setdefault(value.data_ptr(), _TensorAccess(name, value))

    def add(kind, pointers, mask):
        addresses = np.broadcast_to(pointers.data, mask.data.shape)[mask.data]
        if not addresses.size:
            return
        lowest = addresses.min()
        owner = next(t for t in tensors.values() if t.begin <= lowest < t.end)
        size = pointers.get_element_ty().primitive_bitwidth // 8
        owner.add(kind, addresses, size)

    load, store = builder.create_masked_load, builder.create_masked_store
    atomic = builder.create_atomic_rmw

    def counted_load(pointers, mask, *rest):
        add('read', pointers, mask)
        return load(pointers, mask, *rest)

    def counted_store(pointers, value, mask, *rest):
        add('write', pointers, mask)
        return store(pointers, value, mask, *rest)

    def counted_atomic(operation, pointers, value, mask, *rest):
        add('read', pointers, mask)
        add('write', pointers, mask)
        return atomic(operation, pointers, value, mask, *rest)

    with (
        mock.patch.object(builder, 'create_masked_load', counted_load),
        mock.patch.object(builder, 'create_masked_store', counted_store),
        mock.patch.object(builder, 'create_atomic_rmw', counted_atomic),
    ):
        yield
    for t in tensors.values():
        read, written = (SECTOR * int(t.touched[kind].sum()) for kind in ('read', 'write'))
        if read or written:
            found.append(
                TensorTraffic(
                    launch.kernel, t.name, read, written, t.asked['read'], t.asked['write']
                )
            )


def step_traffic(
    pos: Tensor, neg: Tensor, tau: float, neg_mask: Tensor | None = None
) -> StepTraffic:
    """Bytes moved by the pair sum, forward and backward.

    Args:
        pos: (L, P) scores of the positives.
        neg: (L, N) scores of the negatives.
        tau: Margin, > 0.
        neg_mask: (L, N) bool, False for what is no negative.

    Raises:
        UserError: Without triton's interpreter.
    """
    if os.environ.get('TRITON_INTERPRET') != '1':
        raise UserError(
            'bytes are counted by an interpreter that is not on; set '
            'TRITON_INTERPRET=1 before the start'
        )
    found: list[TensorTraffic] = []
    cleared: list[int] = []
    launches: list[Launch] = []

    def on_launch(launch: Launch, run: Callable[[], object]) -> None:
        if launch.kernel == 'moment_kernel':
            sums, crowd = (launch.arguments[k] for k in ('sum_ptr', 'crowd_ptr'))
            cleared.append(sums.nbytes + crowd.nbytes)
        launches.append(launch)
        with _counted(launch, found):
            run()

    pos, neg = (x.detach().clone().requires_grad_() for x in (pos, neg))
    with recorded_launches(on_launch):
        total = pairwise_surrogate_sum(
            pos, neg, OneSidedHuber(tau), neg_mask=neg_mask, method='triton'
        )
        torch.autograd.grad(total.sum(), (pos, neg))
    return StepTraffic(
        neg.numel(),
        3 * neg.nbytes,
        found,
        sum(cleared),
        # The sums are cleared by a kernel of torch.
        len(launches) + len(cleared),
    )
