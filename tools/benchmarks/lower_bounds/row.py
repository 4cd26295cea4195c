"""Rows of the table of lower bounds, and the sides of each."""

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sizes:
    """Sizes of all works, and the device."""

    rows: int = 25_000  # Boxes or images with scores
    classes: int = 80  # Columns of the scores
    positives: int = 1000  # Rows with a class; the others are background
    queries: int = 450  # Images of a retrieval batch, each of which searches the others
    class_size: int = 5  # Images of a class
    dimensions: int = 512  # Length of their embeddings
    batch: int = 512  # Samples with two views of a contrastive batch
    width: int = 256  # Length of their embeddings
    samples: int = 100_000  # Samples of the training set, for state of each
    pairs: int = 1024  # Users, and items, of a two-tower batch
    channels: int = 64  # Length of their embeddings
    searched: int = 10_000  # Images of a test set of retrieval
    listed: int = 100  # Length of the lists of SoDeep
    device: str = 'cpu'  # ``cpu`` or ``cuda``


#: Small enough for a test.
QUICK = Sizes(
    **dict(rows=30, classes=3, positives=9, queries=12, class_size=3, dimensions=8),
    **dict(batch=8, width=8, samples=40, pairs=10, channels=4, searched=60, listed=6),
)

Step = Callable[[], object]


@dataclass
class Sides:
    """The sides that are timed."""

    floor: Step  # The work that nothing can do without
    ours: Step  # The loss, forward and backward, or the metric
    # Other implementations by name. Losses of one shape that are not the same, as cross-entropy,
    # serve as a peer, too.
    peers: dict[str, Step] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One loss or metric."""

    name: str  # Registered name
    setting: str  # What tells it from other rows of the name, or ''
    work: str  # What it is called with
    floor: str  # What the floor is
    prepare: Callable[[], Sides]  # Makes tensors and sides


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def backward_step(loss: Callable[[], Tensor], leaves: Iterable[Tensor]) -> Step:
    """A loss, forward and backward."""

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        loss().backward()

    return step


def products(shapes: Sequence[tuple[int, int, int]], device: str) -> Step:
    """Bare matrix products, into buffers that are there."""
    work = []
    for m, k, n in shapes:
        left = torch.randn(m, k, device=device)
        right = torch.randn(k, n, device=device)
        work.append((left, right, left.new_empty(m, n)))

    def step() -> None:
        for left, right, out in work:
            torch.mm(left, right, out=out)

    return step
