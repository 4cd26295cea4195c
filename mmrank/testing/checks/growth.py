"""Checks of what a loss costs as the batch grows: counted, not timed."""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mmrank.testing.check import check, require
from mmrank.testing.subject import Subject

SIZES = (32, 64)


class Counter(TorchDispatchMode):
    """Counts operators and the numbers of the largest tensor that they return."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.operators += 1
        for x in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(x, torch.Tensor):
                # An expanded tensor holds as much as its storage.
                self.largest = max(self.largest, x.untyped_storage().nbytes())
        return found


def growth(subject: Subject) -> tuple[float, float]:
    """Exponents of the memory and of the number of operators, from one batch to its double."""
    counters = []
    for size in SIZES:
        batch = subject.batch(size)
        loss = subject.build()
        leaves = [x.requires_grad_() for x in batch.leaves]
        with Counter() as counter:
            batch.with_leaves(leaves).of(loss).backward()
        counters.append(counter)
    small, large = counters
    memory = math.log2(large.largest / small.largest)
    return memory, math.log2(large.operators / small.operators)


@check(is_usual=False)
def _memory(subject: Subject) -> None:
    """The largest tensor grows with the square of the batch at most.

    A tensor of all triplets grows with the cube: a batch of 1,000 needs 8 GB.
    """
    exponent = growth(subject)[0]
    require(exponent < 2.5, f'the largest tensor grows as the batch to the power {exponent:.1f}')


@check(is_usual=False)
def _loops(subject: Subject) -> None:
    """The number of operators does not grow with the batch.

    A loop over samples or pairs starts thousands of kernels, and a GPU waits for each. Counted and
    not timed, so that a busy machine finds the same.
    """
    exponent = growth(subject)[1]
    require(exponent < 0.4, f'the operators grow as the batch to the power {exponent:.1f}')
